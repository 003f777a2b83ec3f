// Writes the residence into each copy that wants it, behind the last FIFO: `now` when the first
// word leaves, less the arrival. The header goes straight through, the words by one register.
module mqtick_departure (
  input  logic        clk,
  input  logic        rst,
  input  logic [63:0] now,
  input  logic        in_hdr_valid,
  output logic        in_hdr_ready,
  input  logic [15:0] in_length,
  input  logic        in_fill,
  input  logic [63:0] in_arrival,
  input  logic [63:0] in_tdata,
  input  logic [7:0]  in_tkeep,
  input  logic        in_tvalid,
  output logic        in_tready,
  input  logic        in_tlast,
  output logic        out_hdr_valid,
  input  logic        out_hdr_ready,
  output logic [63:0] out_tdata,
  output logic [7:0]  out_tkeep,
  output logic        out_tvalid,
  input  logic        out_tready,
  output logic        out_tlast
);

  // The header of the datagram that comes next, once it was taken.
  logic next_valid, next_fill, fill;
  logic [10:0] next_length, length;
  logic [63:0] next_arrival, arrival;
  logic header, first, take;

  assign out_hdr_valid = in_hdr_valid && !next_valid;
  assign in_hdr_ready = out_hdr_ready && !next_valid;
  assign header = in_hdr_valid && in_hdr_ready;
  assign in_tready = (!out_tvalid || out_tready) && (!first || next_valid || header);
  assign take = in_tvalid && in_tready;

  logic [63:0] data, leaving, residence, swapped, turned;
  logic [7:0] word;        // of the datagram, the one in `data`
  logic [7:0] begins;      // word in which the residence begins
  logic [2:0] over;
  assign leaving = now - arrival;
  assign swapped = word == 0 ? leaving : residence;
  assign over = length[2:0];
  assign begins = 8'((length - 11'd16) >> 3);
  always_comb begin
    for (int i = 0; i < 8; i++) turned[8*i +: 8] = swapped[8*(7 - 3'(3'(i) - over)) +: 8];
    out_tdata = data;
    for (int i = 0; i < 8; i++)
      if (fill && ((word == begins && 3'(i) >= over)
                   || (word == begins + 8'd1 && 3'(i) < over)))
        out_tdata[8*i +: 8] = turned[8*i +: 8];
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      next_valid <= 0;
      first <= 1;
      out_tvalid <= 0;
    end else begin
      if (take && first) next_valid <= 0;
      else if (header) next_valid <= 1;
      if (take) first <= in_tlast;
      if (take) out_tvalid <= 1;
      else if (out_tready) out_tvalid <= 0;
    end
    if (header) begin
      next_length <= in_length[10:0];
      next_fill <= in_fill;
      next_arrival <= in_arrival;
    end
    if (out_tvalid && out_tready && word == 0) residence <= leaving;
    if (take) begin
      data <= in_tdata;
      out_tkeep <= in_tkeep;
      out_tlast <= in_tlast;
      word <= first ? 8'd0 : word + 8'd1;
      if (first) begin
        length <= next_valid ? next_length : in_length[10:0];
        fill <= next_valid ? next_fill : in_fill;
        arrival <= next_valid ? next_arrival : in_arrival;
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, in_length[15:11]};

endmodule
