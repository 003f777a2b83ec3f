// Looks for leases that have ended, one client each 1,024 cycles, in a cycle in which the generator
// reads no client; so no message waits for it. The control is called only to free what ended.
module mqtick_sweep #(
  parameter int CW = 14
) (
  input  logic          clk,
  input  logic          rst,
  input  logic          ready,
  input  logic          taken,          // the clients are being read by others
  output logic          re,
  output logic [CW-1:0] at,
  input  logic          client_valid,
  input  logic [31:0]   client_expiry,
  input  logic [31:0]   tick,
  output logic          due,            // the lease of `at` has ended
  input  logic          sweep           // it is being freed
);

  logic [9:0] timer;
  logic wanted, reading;

  assign re = wanted && !taken;

  always_ff @(posedge clk)
    if (rst) begin
      timer <= 0;
      wanted <= 0;
      reading <= 0;
      at <= 0;
      due <= 0;
    end else begin
      timer <= timer + 1'b1;
      reading <= re;
      if (re) wanted <= 0;
      else if (timer == 0 && ready && !due && !reading) begin
        wanted <= 1;
        at <= at + 1'b1;
      end
      if (sweep) due <= 0;
      else if (reading && client_valid && tick - client_expiry < 32'h8000_0000) due <= 1;
    end

endmodule
