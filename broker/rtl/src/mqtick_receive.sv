// Takes datagrams into the slots of the packet buffer, and says which subnets the sender is in.
//
// A datagram of which the stream has another length than its header said is damaged, as is one
// with tuser. One that is too long is read to its end and kept as far as there is room.
module mqtick_receive #(
  parameter int SLOTS = 4,
  localparam int SB = $clog2(SLOTS)
) (
  input  logic             clk,
  input  logic             rst,
  input  logic             enable,
  input  logic             rx_hdr_valid,
  output logic             rx_hdr_ready,
  input  logic [31:0]      rx_src_ip,
  input  logic [15:0]      rx_src_port,
  input  logic [15:0]      rx_length,
  input  logic [63:0]      rx_stamp,
  input  logic [63:0]      rx_tdata,
  input  logic [7:0]       rx_tkeep,
  input  logic             rx_tvalid,
  output logic             rx_tready,
  input  logic             rx_tlast,
  input  logic             rx_tuser,
  // subnets: entry under `subnet_at`, address and mask of publishers and of subscribers
  output logic [1:0]       subnet_at,
  input  logic [63:0]      publishers,
  input  logic [63:0]      subscribers,
  // packet buffer
  output logic             we,
  output logic [SB+7:0]    waddr,
  output logic [63:0]      wdata,
  // the slot that the parser looks at
  input  logic [SB-1:0]    slot,
  input  logic             passed,   // it has been looked at
  output logic             started,   // its header is known, and its subnets
  output logic             complete,
  output logic             damaged,
  output logic [7:0]       words,     // so many can be read
  output logic [31:0]      ip,
  output logic [15:0]      port,
  output logic [15:0]      length,
  output logic [63:0]      stamp,
  output logic             may_publish,
  output logic             may_subscribe,
  // slots that are free again
  input  logic             free_a,
  input  logic [SB-1:0]    free_a_slot,
  input  logic             free_b,
  input  logic [SB-1:0]    free_b_slot
);

  localparam int WORDS = 184;  // 1472 octets

  logic [127:0] headers [SLOTS];
  logic [SLOTS-1:0] busy, done, bad, pub, sub;
  logic [SLOTS-1:0] fresh;  // the parser has yet to look at it: one that is still sent is not new
  logic [SB-1:0] into;
  logic receiving;
  logic [7:0] word;
  logic [15:0] octets;  // of the words before this one
  logic [15:0] expected;
  logic [2:0] checked;  // subnets looked at
  logic [31:0] from;
  logic [3:0] kept;

  assign rx_hdr_ready = enable && !receiving && !busy[into];
  assign rx_tready = receiving && !done[into];
  assign subnet_at = checked[1:0];
  assign we = rx_tready && rx_tvalid && word < 8'(WORDS);
  assign waddr = {into, word};
  assign wdata = rx_tdata;

  assign {ip, port, length, stamp} = headers[slot];
  // The checks of the subnets end before the slot is read when they began with its header.
  assign started = fresh[slot] && !(receiving && into == slot && !checked[2]);
  assign complete = fresh[slot] && done[slot];
  assign damaged = bad[slot];
  assign words = done[slot] ? 8'hff : word;
  assign may_publish = pub[slot];
  assign may_subscribe = sub[slot];

  always_comb begin
    kept = 0;
    for (int i = 0; i < 8; i++) kept += 4'(rx_tkeep[i]);
  end

  always_ff @(posedge clk) begin
    if (rx_hdr_valid && rx_hdr_ready)
      headers[into] <= {rx_src_ip, rx_src_port, rx_length, rx_stamp};
    if (rst) begin
      busy <= 0;
      fresh <= 0;
      done <= 0;
      bad <= 0;
      pub <= 0;
      sub <= 0;
      into <= 0;
      receiving <= 0;
      word <= 0;
      octets <= 0;
      expected <= 0;
      checked <= 0;
      from <= 0;
    end else begin
      if (passed) fresh[slot] <= 0;
      if (free_a) busy[free_a_slot] <= 0;
      if (free_b) busy[free_b_slot] <= 0;
      if (rx_hdr_valid && rx_hdr_ready) begin
        receiving <= 1;
        busy[into] <= 1;
        fresh[into] <= 1;
        done[into] <= 0;
        pub[into] <= 0;
        sub[into] <= 0;
        from <= rx_src_ip;
        expected <= rx_length;
        word <= 0;
        octets <= 0;
        checked <= 0;
      end
      if (receiving) begin
        if (!checked[2]) begin
          checked <= checked + 1'b1;
          if ((from & publishers[31:0]) == publishers[63:32]) pub[into] <= 1;
          if ((from & subscribers[31:0]) == subscribers[63:32]) sub[into] <= 1;
        end
        if (rx_tvalid && rx_tready) begin
          if (word < 8'(WORDS)) word <= word + 1'b1;
          if (!octets[15]) octets <= octets + 16'd8;
          if (rx_tlast) begin
            done[into] <= 1;
            bad[into] <= rx_tuser || octets + 16'(kept) != expected;
          end
        end
        if (done[into] && checked[2]) begin
          receiving <= 0;
          into <= into + 1'b1;
        end
      end
    end
  end

endmodule
