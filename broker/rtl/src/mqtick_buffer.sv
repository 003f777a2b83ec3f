// The packet buffer: written word by word as datagrams come, read in two ways: four octets from
// any place of a slot, for what parses, and whole words, for what sends.
module mqtick_buffer #(
  parameter int SLOTS = 4,
  localparam int SB = $clog2(SLOTS)
) (
  input  logic          clk,
  input  logic          we,
  input  logic [SB+7:0] waddr,
  input  logic [63:0]   wdata,
  input  logic [SB-1:0] slot,
  input  logic [10:0]   at,      // the first of four octets
  output logic [31:0]   window,  // one cycle later; the first in 7:0
  input  logic          re,
  input  logic [SB+7:0] raddr,
  output logic [63:0]   rdata
);

  logic [31:0] low, high;
  logic [2:0] turn;
  logic [63:0] pair;

  mqtick_ram #(.WIDTH(32), .DEPTH(SLOTS * 256)) u_low (
    .clk, .we, .waddr, .wdata(wdata[31:0]), .re(1'b1),
    .raddr({slot, at[10:3] + 8'(at[2])}), .rdata(low));
  mqtick_ram #(.WIDTH(32), .DEPTH(SLOTS * 256)) u_high (
    .clk, .we, .waddr, .wdata(wdata[63:32]), .re(1'b1), .raddr({slot, at[10:3]}), .rdata(high));
  mqtick_ram #(.WIDTH(64), .DEPTH(SLOTS * 256)) u_words (
    .clk, .we, .waddr, .wdata, .re, .raddr, .rdata);

  always_ff @(posedge clk) turn <= at[2:0];

  assign pair = turn[2] ? {low, high} : {high, low};
  always_comb
    case (turn[1:0])
      2'd0: window = pair[31:0];
      2'd1: window = pair[39:8];
      2'd2: window = pair[47:16];
      default: window = pair[55:24];
    endcase

  logic unused;
  assign unused = &{1'b0, pair};

endmodule
