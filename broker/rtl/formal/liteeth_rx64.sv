// mqtick_liteeth_rx64: both streams hold their words; each word that comes leaves, in order; a last
// word leaves only when its frame's verdict is known, and says "drop it" if that was bad.
module liteeth_rx64 (
    input logic        clk,
    input logic        s_tvalid,
    input logic [ 7:0] s_tend,
    input logic        s_tlast,
    input logic [31:0] s_ip,
    input logic [15:0] s_port,
    input logic [15:0] s_octets,
    input logic [ 3:0] s_frame,
    input logic [63:0] s_stamp,
    input logic [15:0] done,
    input logic [15:0] bad,
    input logic        rx_hdr_ready,
    input logic        rx_tready
);
  logic rst = 1;
  always_ff @(posedge clk) rst <= 0;

  // The module does not look at the data: words that carry their number show the order.
  logic [3:0] in = 0, out = 0;
  wire [63:0] s_tdata = 64'(in);
  logic s_tready, rx_hdr_valid, rx_tvalid, rx_tlast, rx_tuser;
  logic [31:0] rx_src_ip;
  logic [15:0] rx_src_port, rx_length;
  logic [63:0] rx_stamp, rx_tdata;
  logic [7:0] rx_tkeep;
  mqtick_liteeth_rx64 dut (.*);

  stream_holds #(74) payload (
      .clk, .rst, .valid(rx_tvalid), .ready(rx_tready),
      .word({rx_tdata, rx_tkeep, rx_tlast, rx_tuser}));
  stream_holds #(128) header (
      .clk, .rst, .valid(rx_hdr_valid), .ready(rx_hdr_ready),
      .word({rx_src_ip, rx_src_port, rx_length, rx_stamp}));

  // The verdict of the datagram that came last: whatever the flags of its number were when they
  // were first up behind its first word. Numbers may come round after that.
  logic going = 0, known = 0, spoiled;
  logic [3:0] frame;
  logic held = 0, ended;
  always_ff @(posedge clk) if (!rst) begin
    if (s_tvalid && s_tready) begin
      in    <= in + 1'b1;
      going <= !s_tlast;
      held  <= 1;
      ended <= s_tlast;
      if (!going) begin
        frame <= s_frame;
        known <= 0;
      end
    end else if (rx_tvalid && rx_tready) held <= 0;
    if (!(s_tvalid && s_tready && !going) && !known && done[frame]) begin
      known   <= 1;
      spoiled <= bad[frame];
    end
    if (rx_tvalid) begin
      assert (held && rx_tdata == 64'(out) && rx_tlast == ended);
      if (rx_tlast) assert (known || done[frame]);
      if (rx_tlast && (known ? spoiled : bad[frame])) assert (rx_tuser);
      if (rx_tvalid && rx_tready) out <= out + 1'b1;
    end
    // Nobody waits for ever.
    if (held && (!ended || known)) assert (rx_tvalid);
  end
  // `bad` stands still while `done` does, but for the cycle in which both are written.
  logic [15:0] was_done = 0, was_bad;
  always_ff @(posedge clk) begin
    was_done <= done;
    was_bad  <= bad;
    assume ((done & was_done & (bad ^ was_bad)) == 0);
  end
endmodule
