// mqtick_receive: each word that is taken is written into the slot of its datagram, at its place;
// what it says of a datagram (sender, stamp, subnets, whole or damaged) is true when it says that it
// knows. One datagram fits into the cycles, so that slots are not used again here.
module receive (
    input logic        clk,
    input logic        rx_hdr_valid,
    input logic [31:0] rx_src_ip,
    input logic [15:0] rx_src_port,
    input logic [15:0] rx_length,
    input logic [63:0] rx_stamp,
    input logic [63:0] rx_tdata,
    input logic [ 7:0] rx_tkeep,
    input logic        rx_tvalid,
    input logic        rx_tlast,
    input logic        rx_tuser,
    input logic        enable,
    input logic        passed,
    input logic        free_a,
    input logic        free_b,
    input logic        free_b_slot
);
  logic rst = 1;
  always_ff @(posedge clk) rst <= 0;

  logic slot = 0;
  logic rx_hdr_ready, rx_tready, we, started, complete, damaged, may_publish, may_subscribe;
  logic [1:0] subnet_at;
  logic [8:0] waddr;
  logic [63:0] wdata, stamp;
  logic [7:0] words;
  logic [31:0] ip;
  logic [15:0] port, length;
  (* anyconst *) logic [3:0][63:0] publishers_of, subscribers_of;
  mqtick_receive #(.SLOTS(2)) dut (
      .publishers(publishers_of[subnet_at]), .subscribers(subscribers_of[subnet_at]),
      .free_a_slot(slot), .*);

  stream_holds #(128, 1) given_header (
      .clk, .rst, .valid(rx_hdr_valid), .ready(rx_hdr_ready),
      .word({rx_src_ip, rx_src_port, rx_length, rx_stamp}));
  stream_holds #(74, 1) given_words (
      .clk, .rst, .valid(rx_tvalid), .ready(rx_tready),
      .word({rx_tdata, rx_tkeep, rx_tlast, rx_tuser}));

  // By slot: it is in use, the parser is done with it, its last word was taken, it was damaged.
  logic [1:0] used = 0, parsed = 0, ended = 0, wrong = 0;
  logic [1:0][127:0] headers;
  logic into = 1, open = 0;  // the slot that is written, or was last; its words still come
  logic [15:0] octets;
  logic [7:0] word;
  wire [3:0] kept = 4'($countones(rx_tkeep));
  logic publishes, subscribes;
  always_comb begin
    publishes = 0;
    subscribes = 0;
    for (int n = 0; n < 4; n++) begin
      publishes |= (ip & publishers_of[n][31:0]) == publishers_of[n][63:32];
      subscribes |= (ip & subscribers_of[n][31:0]) == subscribers_of[n][63:32];
    end
  end

  always_ff @(posedge clk) if (!rst) begin
    // What is copied or compared bit by bit needs few bits, which are free.
    for (int n = 0; n < 4; n++)
      assume ((publishers_of[n] | subscribers_of[n]) == (64'h0000_0003_0000_0003
                                                         & (publishers_of[n] | subscribers_of[n])));
    assume (rx_src_ip < 4 && rx_src_port < 4 && rx_stamp < 4 && rx_length < 64 && rx_tdata < 4);
    // The parser passes what is complete, and the slot is free with that or later.
    assume (!passed || complete);
    assume (!free_a || passed);
    assume (!free_b || (used[free_b_slot] && parsed[free_b_slot]));
    if (passed) begin
      slot         <= !slot;
      parsed[slot] <= 1;
    end
    if (free_a) used[slot] <= 0;
    if (free_b) used[free_b_slot] <= 0;
    if (rx_hdr_valid && rx_hdr_ready) begin
      assert (enable && !used[!into] && !open);
      into          <= !into;
      open          <= 1;
      used[!into]   <= 1;
      parsed[!into] <= 0;
      ended[!into]  <= 0;
      headers[!into] <= {rx_src_ip, rx_src_port, rx_length, rx_stamp};
      octets        <= 0;
      word          <= 0;
    end
    assert (we == (rx_tvalid && rx_tready));
    if (rx_tvalid && rx_tready) begin
      assert (open && used[into] && !parsed[into]);
      assert (waddr == {into, word} && wdata == rx_tdata);
      octets <= octets + 16'd8;
      word   <= word + 1'b1;
      if (rx_tlast) begin
        open        <= 0;
        ended[into] <= 1;
        wrong[into] <= rx_tuser || octets + 16'(kept) != headers[into][79:64];
      end
    end
    if (started) begin
      assert (used[slot] && !parsed[slot]);
      assert ({ip, port, length, stamp} == headers[slot]);
      assert (may_publish == publishes && may_subscribe == subscribes);
    end
    if (complete) begin
      assert (ended[slot]);
      assert (damaged == wrong[slot]);
    end
    if (started && !ended[slot]) assert (words == word);
  end
endmodule
