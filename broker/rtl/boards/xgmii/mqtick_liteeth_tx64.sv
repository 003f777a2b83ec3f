// From the broker's boundary to LiteEth's UDP port, one datagram for each frame time of the wire.
//
// LiteEth takes the next frame while the one before is still leaving, and the residence written
// into it would be too short. So the next one starts when the wire is free.
`default_nettype none

module mqtick_liteeth_tx64 (
    input  wire logic        clk,
    input  wire logic        rst,

    input  wire logic        tx_hdr_valid,
    output logic             tx_hdr_ready,
    input  wire logic [31:0] tx_dst_ip,
    input  wire logic [15:0] tx_dst_port,
    input  wire logic [15:0] tx_length,
    input  wire logic [63:0] tx_tdata,
    input  wire logic [ 7:0] tx_tkeep,
    input  wire logic        tx_tvalid,
    output logic             tx_tready,
    input  wire logic        tx_tlast,

    output logic        m_tvalid,
    input  wire logic   m_tready,
    output logic [63:0] m_tdata,
    output logic [ 7:0] m_tend,   // one bit, with the last word: which octet is the last
    output logic        m_tlast,
    output logic [31:0] m_ip,
    output logic [15:0] m_port,
    output logic [15:0] m_octets
);
  logic going;
  logic [15:0] busy;  // octets that the wire still has to carry

  // Ethernet, IPv4, UDP and checksum are 46 octets, preamble and gap 20; the least frame is 64.
  wire [15:0] frame = tx_length < 16'd18 ? 16'd64 : tx_length + 16'd46;

  assign tx_hdr_ready = !going && busy <= 16'd8;
  wire start = tx_hdr_valid && tx_hdr_ready;

  assign m_tvalid = going && tx_tvalid;
  assign m_tdata = tx_tdata;
  assign m_tlast = tx_tlast;
  assign m_tend = tx_tlast ? tx_tkeep & ~{1'b0, tx_tkeep[7:1]} : 8'd0;
  assign tx_tready = going && m_tready;

  always_ff @(posedge clk) begin
    busy <= start ? busy + frame + 16'd12 : busy > 16'd8 ? busy - 16'd8 : 16'd0;
    if (start) begin
      going    <= 1'b1;
      m_ip     <= tx_dst_ip;
      m_port   <= tx_dst_port;
      m_octets <= tx_length;
    end
    if (m_tvalid && m_tready && m_tlast) going <= 1'b0;
    if (rst) begin
      going <= 1'b0;
      busy  <= '0;
    end
  end
endmodule

`default_nettype wire
