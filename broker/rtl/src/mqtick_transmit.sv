// Sends each copy: the octets as they stand in the packet buffer (or in the pool), the first one
// and the trailer as this copy wants them. No idle word stands between two copies.
module mqtick_transmit
#(
  parameter int SLOTS = 4,
  parameter int POOL_AW = 10,
  localparam int SB = $clog2(SLOTS)
) (
  input  logic               clk,
  input  logic               rst,
  input  logic               record_valid,
  input  mqtick_pkg::record_t rec,
  output logic               record_pop,   // the datagram is done
  input  logic               who_valid,
  input  logic [72:0]        who,
  output logic               who_pop,
  // packet buffer and pool, one cycle later
  output logic               re,
  output logic [SB+7:0]      buffer_at,
  input  logic [63:0]        buffer_data,
  output logic [POOL_AW-1:0] pool_at,
  input  logic [POOL_AW-1:0] pool_base,    // of rec.place
  input  logic [63:0]        pool_data,
  output logic               tx_hdr_valid,
  input  logic               tx_hdr_ready,
  output logic [31:0]        tx_dst_ip,
  output logic [15:0]        tx_dst_port,
  output logic [15:0]        tx_length,
  output logic               tx_fill,
  output logic [63:0]        tx_arrival,
  output logic [63:0]        tx_tdata,
  output logic [7:0]         tx_tkeep,
  output logic               tx_tvalid,
  input  logic               tx_tready,
  output logic               tx_tlast
);

  logic go, take, finish;
  logic a_valid, a_last;
  logic [7:0] a_word, last_word;
  logic [47:0] a_to, b_to;
  logic [23:0] a_copies, b_copies;
  logic b_valid, b_first, b_last, b_second, b_third;

  // The last word has `tail` octets, 1 to 8.
  logic [2:0] over;
  assign over = rec.length[2:0];
  assign last_word = 8'((rec.length - 11'd1) >> 3);

  assign go = (!tx_tvalid || tx_tready) && !(b_valid && b_first && tx_hdr_valid && !tx_hdr_ready);
  assign a_last = a_word == last_word;
  assign take = go && (!a_valid || a_last) && record_valid && who_valid && !who[72];
  assign finish = !a_valid && !b_valid && record_valid && who_valid && who[72];
  assign who_pop = take || finish;
  assign record_pop = finish;
  assign re = go;
  assign buffer_at = {rec.place[SB-1:0], a_word};
  assign pool_at = pool_base + POOL_AW'(a_word);

  // The last eight octets of the trailer, turned to where they stand in a word.
  logic [63:0] fields, turned, patched, word;
  always_comb begin
    fields = 64'h80;  // correction not known, not counted, nobody's stamps
    if (!rec.kept && !rec.unstated) begin
      fields[63:56] = rec.chained ? 8'(rec.source) : 8'd3;
      if (!rec.chained) begin
        if (b_copies != 0) fields[7:0] = 0;
        {fields[39:32], fields[47:40], fields[55:48]} = next_copy;
      end
    end
  end
  logic [23:0] next_copy;
  assign next_copy = b_copies == 24'hffffff ? 24'd1 : b_copies + 24'd1;
  assign turned = fields << {over, 3'd0} | fields >> (7'd64 - {1'b0, over, 3'd0});
  assign word = rec.kept ? pool_data : buffer_data;

  always_comb begin
    patched = word;
    if (b_first && !rec.as_is) patched[0] = rec.kept;
    if (rec.trailer)
      for (int i = 0; i < 8; i++) begin
        if (b_last && (3'(i) < over || over == 0)) patched[8*i +: 8] = turned[8*i +: 8];
        if (b_second && over != 0 && 3'(i) >= over) patched[8*i +: 8] = turned[8*i +: 8];
        // The residence: filled at departure, zero where it means nothing.
        if ((rec.kept || rec.unstated) && ((b_second && (3'(i) < over || over == 0))
            || (b_third && over != 0 && 3'(i) >= over))) patched[8*i +: 8] = 0;
      end
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      a_valid <= 0;
      b_valid <= 0;
      tx_tvalid <= 0;
      tx_hdr_valid <= 0;
    end else begin
      if (tx_hdr_ready) tx_hdr_valid <= 0;
      if (go) begin
        if (take) a_valid <= 1;
        else if (a_last) a_valid <= 0;
        b_valid <= a_valid;
        tx_tvalid <= b_valid;
        if (b_valid && b_first) tx_hdr_valid <= 1;
      end else if (tx_tready) tx_tvalid <= 0;
    end
    if (go) begin
      a_word <= take ? 8'd0 : a_word + 8'd1;
      if (take) {a_to, a_copies} <= who[71:0];
      b_first <= a_word == 0;
      b_last <= a_last;
      b_second <= a_word + 8'd1 == last_word;
      b_third <= a_word + 8'd2 == last_word;
      b_to <= a_to;
      b_copies <= a_copies;
      tx_tdata <= patched;
      tx_tlast <= b_last;
      tx_tkeep <= b_last && over != 0 ? 8'hff >> (4'd8 - {1'b0, over}) : 8'hff;
      if (b_valid && b_first) begin
        {tx_dst_ip, tx_dst_port} <= b_to;
        tx_length <= 16'(rec.length);
        tx_fill <= rec.trailer && !rec.kept && !rec.unstated;
        tx_arrival <= rec.arrival;
      end
    end
  end

endmodule
