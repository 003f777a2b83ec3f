// A stream's word stays as it is until it is taken; with GIVEN the other side promises that.
module stream_holds #(
    parameter int WIDTH = 1,
    parameter bit GIVEN = 0
) (
    input logic             clk,
    input logic             rst,
    input logic             valid,
    input logic             ready,
    input logic [WIDTH-1:0] word
);
  logic waits = 0;
  logic [WIDTH-1:0] was;
  always_ff @(posedge clk) begin
    waits <= valid && !ready && !rst;
    was   <= word;
    if (waits && !rst) begin
      if (GIVEN) assume (valid && word == was);
      else assert (valid && word == was);
    end
  end
endmodule
