// A short queue whose head is visible.
module mqtick_fifo #(
  parameter int WIDTH = 8,
  parameter int DEPTH = 8,
  localparam int AW = $clog2(DEPTH)
) (
  input  logic             clk,
  input  logic             rst,
  input  logic             push,
  input  logic [WIDTH-1:0] in,
  input  logic             pop,
  output logic [WIDTH-1:0] out,
  output logic             valid,
  output logic [AW:0]      count
);

  logic [WIDTH-1:0] mem [DEPTH];
  logic [AW-1:0] head, tail;

  assign out = mem[head];
  assign valid = count != 0;

  always_ff @(posedge clk) begin
    if (push) mem[tail] <= in;
    if (rst) begin
      head <= 0;
      tail <= 0;
      count <= 0;
    end else begin
      if (push) tail <= tail + 1'b1;
      if (pop) head <= head + 1'b1;
      count <= count + (AW+1)'(push) - (AW+1)'(pop);
    end
  end

endmodule
