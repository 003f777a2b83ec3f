// The small modules side by side, in one build. Their inputs are left open: tests drive them there.
module mqtick_modules (
  input logic clk
);

  /* verilator lint_off PINMISSING */
  mqtick_buffer #(.SLOTS(4)) u_buffer (.clk);
  mqtick_departure u_departure (.clk);
  mqtick_generate #(.TW(4), .SW(7), .CW(6)) u_generate (.clk);
  mqtick_hash #(.SHAPES(4), .BITS(42)) u_hash (.clk);
  mqtick_lookup #(.TOPICS(64), .SHAPES(4), .KEY_POOL(2), .TAG(4)) u_lookup (.clk);
  mqtick_parser #(.SLOTS(4)) u_parser (.clk);
  mqtick_retained #(.SLOTS(4), .PLACES(4), .OCTETS(64), .PLACE_WORDS(17), .POOL_AW(7)) u_retained (.clk);
  mqtick_siphash u_siphash (.clk);
  mqtick_sweep #(.CW(3)) u_sweep (.clk);
  mqtick_tables #(.TW(4), .SW(5), .CW(4)) u_tables (.clk);
  mqtick_text u_text (.clk);
  mqtick_time u_time (.clk);
  /* verilator lint_on PINMISSING */

endmodule
