// What the broker needs to know of time: ticks of 2^20 ns and epochs of 64 s since its reset, from
// a counter of 2^-16 ns that wraps each 3.3 days.
module mqtick_time (
  input  logic        clk,
  input  logic        rst,
  input  logic [63:0] now,
  output logic [31:0] tick,
  output logic [15:0] epoch
);

  localparam logic [47:0] EPOCH_NS = 48'd64_000_000_000;

  logic begun;
  logic [47:0] at_reset, since, epoch_began;
  logic [3:0] wraps;
  logic was_high;

  assign tick = {wraps, since[47:20]};

  always_ff @(posedge clk)
    if (rst) begin
      begun <= 0;
      at_reset <= 0;
      since <= 0;
      epoch_began <= 0;
      epoch <= 0;
      wraps <= 0;
      was_high <= 0;
    end else begin
      begun <= 1;
      if (!begun) at_reset <= now[63:16];
      else since <= now[63:16] - at_reset;
      was_high <= since[47];
      if (was_high && !since[47]) wraps <= wraps + 1'b1;
      if (since - epoch_began >= EPOCH_NS) begin
        epoch_began <= epoch_began + EPOCH_NS;
        epoch <= epoch + 1'b1;
      end
    end

  logic unused;
  assign unused = &{1'b0, now[15:0]};

endmodule
