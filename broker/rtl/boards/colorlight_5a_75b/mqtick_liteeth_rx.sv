// From LiteEth's UDP port, 32 bits with the header beside each word, to the broker's boundary.
//
// The last word says "drop it" where the source ends in .255: LiteEth would broadcast every answer.
// Where a frame is padded within a datagram's last word, LiteEth gives the frame's end: the length in
// the header says which octets are the datagram's.
`default_nettype none

module mqtick_liteeth_rx (
    input  wire logic        clk,
    input  wire logic        rst,

    input  wire logic        s_tvalid,
    output logic             s_tready,
    input  wire logic [31:0] s_tdata,
    input  wire logic [ 3:0] s_tend,   // one bit: which octet is the last
    input  wire logic        s_tlast,
    input  wire logic [31:0] s_ip,
    input  wire logic [15:0] s_port,
    input  wire logic [15:0] s_octets,
    input  wire logic [63:0] s_stamp,

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
  logic going, odd;  // within a datagram; the lower half of a word waits
  logic [31:0] half;

  wire [3:0] own = s_octets[1:0] == 2'd0 ? 4'hf : ~(4'hf << s_octets[1:0]);
  wire [3:0] keep = !s_tlast ? 4'hf : own & {s_tend[3], |s_tend[3:2], |s_tend[3:1], |s_tend};
  wire [7:0] host = going ? rx_src_ip[7:0] : s_ip[7:0];

  // A header waits in its register until the broker has taken the one before.
  assign s_tready = (!rx_tvalid || rx_tready) && (going || !rx_hdr_valid || rx_hdr_ready);
  wire take = s_tvalid && s_tready;

  always_ff @(posedge clk) begin
    if (rx_hdr_ready) rx_hdr_valid <= 1'b0;
    if (rx_tready) rx_tvalid <= 1'b0;
    if (take) begin
      going <= !s_tlast;
      odd    <= !s_tlast && !odd;
      if (!going) begin
        rx_hdr_valid <= 1'b1;
        rx_src_ip    <= s_ip;
        rx_src_port  <= s_port;
        rx_length    <= s_octets;
        rx_stamp     <= s_stamp;
      end
      if (!odd) half <= s_tdata;
      if (odd || s_tlast) begin
        rx_tvalid <= 1'b1;
        rx_tdata  <= odd ? {s_tdata, half} : {32'd0, s_tdata};
        rx_tkeep  <= odd ? {keep, 4'hf} : {4'h0, keep};
        rx_tlast  <= s_tlast;
        rx_tuser  <= s_tlast && host == 8'd255;
      end
    end
    if (rst) begin
      going       <= 1'b0;
      odd          <= 1'b0;
      rx_hdr_valid <= 1'b0;
      rx_tvalid    <= 1'b0;
    end
  end
endmodule

`default_nettype wire
