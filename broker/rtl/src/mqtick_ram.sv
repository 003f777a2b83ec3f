// A memory with one port to write and one to read. What is read while it is written is not defined.
//
// A large one is made of blocks of 4,096 rows of up to 72 bits, of which those that are not read
// give zeros: so their words are joined by OR, which takes half of the logic that a choice takes.
// The hints to tools where a memory stands bind nobody to a vendor.
module mqtick_ram #(
  parameter int WIDTH = 64,
  parameter int DEPTH = 1024,
  parameter int PARTS = 1,           // of a word, written each on its own
  parameter bit BLOCK = 0,           // in block RAM, whatever seems best
  parameter int ROWS_LOG2 = 12,      // of the blocks of a large one
  localparam int AW = $clog2(DEPTH)
) (
  input  logic             clk,
  input  logic [PARTS-1:0] we,
  input  logic [AW-1:0]    waddr,
  input  logic [WIDTH-1:0] wdata,
  input  logic             re,
  input  logic [AW-1:0]    raddr,
  output logic [WIDTH-1:0] rdata
);

  localparam int LANE_LOG2 = WIDTH > 36 ? 0 : WIDTH > 18 ? 1 : 2;  // words in a row
  localparam int LANES = 1 << LANE_LOG2;
  localparam int BLOCK_LOG2 = ROWS_LOG2 + LANE_LOG2;
  localparam int BLOCKS = (DEPTH + (1 << BLOCK_LOG2) - 1) >> BLOCK_LOG2;
  localparam int PART = WIDTH / PARTS;
  // One array is faster to simulate; formal/ram.sv proves that blocks, too, give what was written.
`ifdef MQTICK_WHOLE_MEMORIES
  localparam bit WHOLE = 1;
`else
  localparam bit WHOLE = BLOCKS == 1;
`endif

  if (BLOCK) begin : block_ram
    (* no_rw_check, ram_style = "block" *) logic [WIDTH-1:0] mem [DEPTH];
    always_ff @(posedge clk) begin
      for (int p = 0; p < PARTS; p++)
        if (we[p]) mem[waddr][PART*p +: PART] <= wdata[PART*p +: PART];
      if (re) rdata <= mem[raddr];
    end
  end else if (WHOLE) begin : whole
    (* no_rw_check *) logic [WIDTH-1:0] mem [DEPTH];
    always_ff @(posedge clk) begin
      for (int p = 0; p < PARTS; p++)
        if (we[p]) mem[waddr][PART*p +: PART] <= wdata[PART*p +: PART];
      if (re) rdata <= mem[raddr];
    end
  end else begin : blocks
    logic [LANES*WIDTH-1:0] row [BLOCKS];
    for (genvar b = 0; b < BLOCKS; b++) begin : block
      (* no_rw_check, ram_style = "ultra" *) logic [LANES*WIDTH-1:0] mem [1 << ROWS_LOG2];

      always_ff @(posedge clk) begin
        for (int l = 0; l < LANES; l++)
          if (we[0] && 32'(waddr >> BLOCK_LOG2) == b && (32'(waddr) & (LANES - 1)) == l)
            mem[waddr[BLOCK_LOG2-1:LANE_LOG2]][WIDTH*l +: WIDTH] <= wdata;
        if (re)
          row[b] <= 32'(raddr >> BLOCK_LOG2) == b ? mem[raddr[BLOCK_LOG2-1:LANE_LOG2]] : '0;
      end
    end

    logic [AW-1:0] was;
    logic [LANES*WIDTH-1:0] joined;
    always_ff @(posedge clk) if (re) was <= raddr;
    always_comb begin
      joined = '0;
      for (int b = 0; b < BLOCKS; b++) joined |= row[b];
      rdata = joined[WIDTH-1:0];
      for (int l = 1; l < LANES; l++)
        if ((32'(was) & (LANES - 1)) == l) rdata = joined[WIDTH*l +: WIDTH];
    end
  end

endmodule
