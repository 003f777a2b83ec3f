// 128 bits from the phase of a free-running oscillator against the crystal, drawn once after reset.
//
// Each cycle's sample is stirred into a shift register with feedback; after 2^SAMPLES_LOG2 of them
// the phase has wandered far, and the register stops.
`default_nettype none

module mqtick_seed #(
    parameter int unsigned SAMPLES_LOG2 = 22
) (
    input  wire logic    clk,
    input  wire logic    rst,
    input  wire logic    noise,      // not synchronous to clk
    output logic [127:0] seed,
    output logic         seed_valid
);
  // 2 stages: what is metastable in the first has a cycle to settle.
  logic [1:0] sample;
  logic [SAMPLES_LOG2:0] samples;

  assign seed_valid = samples[SAMPLES_LOG2];

  always_ff @(posedge clk) begin
    sample <= {sample[0], noise};
    // x^128 + x^126 + x^101 + x^99 + 1, of full period
    if (!seed_valid) begin
      samples <= samples + 1'b1;
      seed <= {seed[126:0], sample[1] ^ seed[127] ^ seed[125] ^ seed[100] ^ seed[98]};
    end
    if (rst) begin
      samples <= '0;
      seed    <= '0;
    end
  end
endmodule

`default_nettype wire
