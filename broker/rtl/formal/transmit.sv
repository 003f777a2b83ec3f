// mqtick_transmit: each copy has the octets of its datagram and only these, under a header that
// names its receiver, in order and held until they are taken; between the copies of a datagram no
// word is idle if everybody is ready. (What stands in trailers is compared by the vectors.)
module transmit (
    input logic clk,
    input logic who_valid,
    input logic tx_hdr_ready,
    input logic tx_tready
);
  logic rst = 1;
  always_ff @(posedge clk) rst <= 0;

  (* anyconst *) logic [5:0] length;
  (* anyconst *) logic [15:0] ends;  // whether whom it is given is nobody: the datagram's end
  (* anyconst *) logic kept, as_is, everybody;
  (* anyconst *) logic [1:0] place;
  (* anyconst *) logic [9:0] pool_base;

  // Whom: receivers are numbered.
  logic [3:0] asked = 0;
  logic [5:0] given = 0;
  logic record_pop, who_pop, re, tx_hdr_valid, tx_fill, tx_tvalid, tx_tlast;
  logic [9:0] buffer_at, pool_at;
  logic [63:0] buffer_data, pool_data, tx_arrival, tx_tdata;
  logic [31:0] tx_dst_ip;
  logic [15:0] tx_dst_port, tx_length;
  logic [7:0] tx_tkeep;
  mqtick_pkg::record_t rec;
  always_comb begin
    rec = '0;
    rec.length = 11'(length);
    rec.place = 8'(place);
    rec.kept = kept;
    rec.as_is = as_is;
  end
  mqtick_transmit #(.SLOTS(4), .POOL_AW(10)) dut (
      .record_valid(1'b1), .who({ends[asked], 32'(given), 16'(~given), 24'd0}), .*);

  // A memory in which each octet is the number of its word.
  wire [7:0] word_of_pool = 8'(pool_at - pool_base);
  always_ff @(posedge clk) if (re) begin
    buffer_data <= {8{buffer_at[7:0]}};
    pool_data   <= {8{word_of_pool}};
    if (!rst && tx_tvalid) assert (buffer_at[9:8] == place);
  end

  stream_holds #(1, 1) given_whom (.clk, .rst, .valid(who_valid), .ready(who_pop), .word(1'b0));
  stream_holds #(64) header (
      .clk, .rst, .valid(tx_hdr_valid), .ready(tx_hdr_ready),
      .word({tx_dst_ip, tx_dst_port, tx_length}));
  stream_holds #(73) words (
      .clk, .rst, .valid(tx_tvalid), .ready(tx_tready), .word({tx_tdata, tx_tkeep, tx_tlast}));

  logic [5:0] headers = 0, copies = 0;
  logic [2:0] at = 0;
  logic [5:0] finished = 0;  // copies of datagrams that are done
  logic goes_on = 0;         // a copy of the same datagram follows the word that left
  always_ff @(posedge clk) if (!rst) begin
    assume (length >= 2 && length <= 24);
    if (everybody) assume (who_valid && tx_hdr_ready && tx_tready);
    if (who_pop) begin
      asked <= asked + 1'b1;
      assume (asked != 15);
      if (!ends[asked]) given <= given + 1'b1;
      // A datagram ends when all its copies have left the memory.
      else assert (given <= copies + 1);
    end
    assert (record_pop == (who_pop && ends[asked]));
    if (tx_hdr_valid) begin
      assert (tx_dst_ip == 32'(headers) && tx_dst_port == 16'(~headers) && tx_length == 16'(length));
      assert (!tx_fill);
    end
    if (tx_hdr_valid && tx_hdr_ready) headers <= headers + 1'b1;
    if (tx_tvalid) begin
      assert (copies < given);
      if (at == 0) assert (headers > copies || (headers == copies && tx_hdr_valid));
      assert (tx_tlast == (at == 3'((length - 6'd1) >> 3)));
      for (int i = 0; i < 8; i++)
        if (8 * at + i < length) begin
          assert (tx_tkeep[i]);
          if (at == 0 && i == 0 && !as_is) assert (tx_tdata[0] == kept && tx_tdata[7:1] == 0);
          else assert (tx_tdata[8*i +: 8] == 8'(at));
        end else assert (!tx_tkeep[i]);
    end
    if (tx_tvalid && tx_tready) begin
      at     <= tx_tlast ? 3'd0 : at + 1'b1;
      copies <= copies + 6'(tx_tlast);
    end
    goes_on <= tx_tvalid && (!tx_tlast || copies + 1 < given);
    if (everybody && goes_on) assert (tx_tvalid);
  end
endmodule
