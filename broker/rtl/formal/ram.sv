// mqtick_ram in blocks: what was written last at a place is read there, and kept until the next
// reading.
module ram (
    input logic       clk,
    input logic       we,
    input logic [5:0] waddr,
    input logic [3:0] wdata,
    input logic       re,
    input logic [5:0] raddr
);
  logic [3:0] rdata;
  mqtick_ram #(.WIDTH(4), .DEPTH(40), .ROWS_LOG2(2)) dut (.*);

  (* anyconst *) logic [5:0] chosen;
  logic [3:0] word, was;
  logic written = 0, known = 0;
  always_ff @(posedge clk) begin
    assume (waddr < 40 && raddr < 40 && chosen < 40);
    assume (!(we && re && waddr == raddr));
    if (we && waddr == chosen) begin
      written <= 1;
      word <= wdata;
    end
    if (re) begin
      known <= written && raddr == chosen;
      was <= word;
    end
    if (known) assert (rdata == was);
  end
endmodule
