// mqtick_departure: words and headers pass in order, whole and held until they are taken. Where a
// residence is wanted it is `now` less the arrival, in the cycle in which the first word is taken.
// Everything else stays as it came.
module departure (
    input logic        clk,
    input logic [63:0] now,
    input logic        in_hdr_valid,
    input logic        in_tvalid,
    input logic        out_hdr_ready,
    input logic        out_tready
);
  logic rst = 1;
  always_ff @(posedge clk) rst <= 0;

  // Four datagrams, again and again: length, whether it is filled; each arrives one unit later.
  (* anyconst *) logic [3:0][5:0] lengths;
  (* anyconst *) logic [3:0] fills;
  logic [5:0] words_in = 0, words_out = 0;
  logic [1:0] header = 0, frame_in = 0, frame_out = 0;
  logic [2:0] at_in = 0, at_out = 0;
  logic [63:0] left, stated;
  wire [5:0] length_in = lengths[frame_in], length_out = lengths[frame_out];

  logic in_hdr_ready, in_tready, in_tlast, out_hdr_valid, out_tvalid, out_tlast;
  logic [7:0] in_tkeep, out_tkeep;
  logic [63:0] in_tdata, out_tdata;
  assign in_tlast = at_in == 3'((length_in - 6'd1) >> 3);
  assign in_tkeep = in_tlast && length_in[2:0] != 0 ? 8'hff >> (4'd8 - length_in[2:0]) : 8'hff;
  assign in_tdata = {8{2'b01, words_in}};
  mqtick_departure dut (
      .in_length(16'(lengths[header])), .in_fill(fills[header]), .in_arrival(64'(header)), .*);

  stream_holds #(1, 1) given_header (
      .clk, .rst, .valid(in_hdr_valid), .ready(in_hdr_ready), .word(1'b0));
  stream_holds #(1, 1) given_words (
      .clk, .rst, .valid(in_tvalid), .ready(in_tready), .word(1'b0));
  stream_holds #(9) words (
      .clk, .rst, .valid(out_tvalid), .ready(out_tready), .word({out_tkeep, out_tlast}));

  assign stated = at_out == 0 ? now - 64'(frame_out) : left;
  always_ff @(posedge clk) if (!rst) begin
    for (int f = 0; f < 4; f++) assume (lengths[f] >= 24 && lengths[f] <= 32);
    assume (now[7:0] >= 4);  // a subtraction without borrowing is enough to see which is which
    assert ((in_hdr_valid && in_hdr_ready) == (out_hdr_valid && out_hdr_ready));
    if (in_hdr_valid && in_hdr_ready) header <= header + 1'b1;
    if (in_tvalid && in_tready) begin
      words_in <= words_in + 1'b1;
      at_in    <= in_tlast ? 3'd0 : at_in + 1'b1;
      frame_in <= frame_in + 2'(in_tlast);
    end
    if (out_tvalid) begin
      assert (out_tlast == (at_out == 3'((length_out - 6'd1) >> 3)));
      for (int i = 0; i < 8; i++)
        if (8 * at_out + i < length_out) begin
          assert (out_tkeep[i]);
          if (fills[frame_out] && 8 * at_out + i >= length_out - 16
              && 8 * at_out + i < length_out - 8)
            assert (out_tdata[8*i +: 8] == 8'(stated >> 8 * (length_out - 9 - 8 * at_out - i)));
          else assert (out_tdata[8*i +: 8] == {2'b01, words_out});
        end else assert (!out_tkeep[i]);
    end
    if (out_tvalid && out_tready) begin
      words_out <= words_out + 1'b1;
      at_out    <= out_tlast ? 3'd0 : at_out + 1'b1;
      frame_out <= frame_out + 2'(out_tlast);
      if (at_out == 0) left <= stated;
    end
  end
endmodule
