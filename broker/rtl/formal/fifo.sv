// mqtick_fifo, used as it asks for (no push when it is full, no pop when it is empty): what goes in
// comes out, once, in order, and its count is the number of words in it.
module fifo (
    input logic       clk,
    input logic       push,
    input logic [7:0] in,
    input logic       pop
);
  logic rst = 1;
  always_ff @(posedge clk) rst <= 0;

  logic [7:0] out;
  logic valid;
  logic [2:0] count;
  mqtick_fifo #(.WIDTH(8), .DEPTH(4)) dut (.*);

  (* anyconst *) logic [4:0] chosen;
  logic [4:0] pushed = 0, popped = 0;
  logic [7:0] word;
  always_ff @(posedge clk) if (!rst) begin
    assume (!(push && count == 4));
    assume (!(pop && !valid));
    assume (pushed != 5'h1f);
    pushed <= pushed + 5'(push);
    popped <= popped + 5'(pop);
    if (push && pushed == chosen) word <= in;
    assert (count <= 4);
    assert (count == pushed - popped);
    assert (valid == (count != 0));
    if (valid && popped == chosen) assert (out == word);
  end
endmodule
