// From LiteEth's UDP port, 64 bits with the header beside each word, to the broker's boundary.
//
// A datagram goes on while its frame comes; its last word waits until the frame's end was seen, and
// says "drop it" where the frame was bad, where octets are missing, or where the source ends in
// .255, because LiteEth would broadcast every answer. The datagram's end is where its header says:
// where a frame is padded within the same word, LiteEth gives the frame's.
`default_nettype none

module mqtick_liteeth_rx64 (
    input  wire logic        clk,
    input  wire logic        rst,

    input  wire logic        s_tvalid,
    output logic             s_tready,
    input  wire logic [63:0] s_tdata,
    input  wire logic [ 7:0] s_tend,   // one bit: which octet is the last
    input  wire logic        s_tlast,
    input  wire logic [31:0] s_ip,
    input  wire logic [15:0] s_port,
    input  wire logic [15:0] s_octets,
    // of the frame that the first word is of, while that word comes
    input  wire logic [ 3:0] s_frame,
    input  wire logic [63:0] s_stamp,
    // of all frames
    input  wire logic [15:0] done,
    input  wire logic [15:0] bad,

    output logic        rx_hdr_valid,
    input  wire logic   rx_hdr_ready,
    output logic [31:0] rx_src_ip,
    output logic [15:0] rx_src_port,
    output logic [15:0] rx_length,
    output logic [63:0] rx_stamp,
    output logic [63:0] rx_tdata,
    output logic [ 7:0] rx_tkeep,
    output logic        rx_tvalid,
    input  wire logic   rx_tready,
    output logic        rx_tlast,
    output logic        rx_tuser
);
  logic going, held, wrong, judged, spoiled;
  logic [3:0] frame;
  logic [15:0] left;  // octets

  wire is_known = judged || done[frame];
  wire is_bad = judged ? spoiled : bad[frame];
  assign rx_tvalid = held && (!rx_tlast || is_known);
  assign rx_tuser = rx_tlast && (wrong || is_bad);

  // A header waits in its register until the broker has taken the one before.
  assign s_tready = (!held || (rx_tvalid && rx_tready))
    && (going || !rx_hdr_valid || rx_hdr_ready);
  wire take = s_tvalid && s_tready;
  wire [15:0] octets = going ? left : s_octets;
  wire [7:0] keep = octets >= 16'd8 ? 8'hff : ~(8'hff << octets[2:0]);
  wire [7:0] there = (s_tend << 1) - 8'd1;
  wire [7:0] host = going ? rx_src_ip[7:0] : s_ip[7:0];

  always_ff @(posedge clk) begin
    if (rx_hdr_ready) rx_hdr_valid <= 1'b0;
    if (rx_tvalid && rx_tready) held <= 1'b0;
    // Now or never: frames that are not the broker's go by, and numbers come round.
    if (!judged && done[frame]) begin
      judged  <= 1'b1;
      spoiled <= bad[frame];
    end
    if (take) begin
      going <= !s_tlast;
      held  <= 1'b1;
      if (!going) begin
        rx_hdr_valid <= 1'b1;
        rx_src_ip    <= s_ip;
        rx_src_port  <= s_port;
        rx_length    <= s_octets;
        rx_stamp     <= s_stamp;
        frame        <= s_frame;
        judged       <= 1'b0;
      end
      left     <= octets - 16'd8;
      rx_tdata <= s_tdata;
      rx_tkeep <= keep;
      rx_tlast <= s_tlast;
      wrong    <= octets > 16'd8 || (keep & ~there) != 8'd0 || host == 8'd255;
    end
    if (rst) begin
      going        <= 1'b0;
      held         <= 1'b0;
      rx_hdr_valid <= 1'b0;
    end
  end
endmodule

`default_nettype wire
