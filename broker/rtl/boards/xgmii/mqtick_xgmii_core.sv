// What LiteEth's 64-bit UDP port and the frames behind its MAC are joined to: counter, the way
// through for frames, the broker.
`default_nettype none

module mqtick_xgmii_core #(
    parameter int unsigned TOPICS = 512,
    parameter int unsigned SUBSCRIPTIONS = 2048,
    parameter int unsigned CLIENTS = 1024
) (
    input  wire logic         clk,
    input  wire logic         rst,
    input  wire logic [127:0] seed,
    input  wire logic         seed_valid,
    output logic [63:0]       now,      // 2^-16 ns

    input  wire logic         s_tvalid,  // frames
    output logic              s_tready,
    input  wire logic [ 63:0] s_tdata,
    input  wire logic [  7:0] s_tend,
    input  wire logic         s_tlast,
    input  wire logic         s_terror,
    output logic              m_tvalid,
    input  wire logic         m_tready,
    output logic [63:0]       m_tdata,
    output logic [ 7:0]       m_tend,
    output logic              m_tlast,
    output logic [ 3:0]       m_frame,
    output logic [15:0]       bad,

    input  wire logic         rx_valid,  // datagrams
    output logic              rx_ready,
    input  wire logic [ 63:0] rx_data,
    input  wire logic [  7:0] rx_end,
    input  wire logic         rx_last,
    input  wire logic [ 31:0] rx_ip,
    input  wire logic [ 15:0] rx_port,
    input  wire logic [ 15:0] rx_octets,
    output logic              tx_valid,
    input  wire logic         tx_ready,
    output logic [63:0]       tx_data,
    output logic [ 7:0]       tx_end,
    output logic              tx_last,
    output logic [31:0]       tx_ip,
    output logic [15:0]       tx_port,
    output logic [15:0]       tx_octets,

    input  wire logic [11:0]  s_axil_awaddr,
    input  wire logic         s_axil_awvalid,
    output logic              s_axil_awready,
    input  wire logic [31:0]  s_axil_wdata,
    input  wire logic [ 3:0]  s_axil_wstrb,
    input  wire logic         s_axil_wvalid,
    output logic              s_axil_wready,
    output logic [ 1:0]       s_axil_bresp,
    output logic              s_axil_bvalid,
    input  wire logic         s_axil_bready,
    input  wire logic [11:0]  s_axil_araddr,
    input  wire logic         s_axil_arvalid,
    output logic              s_axil_arready,
    output logic [31:0]       s_axil_rdata,
    output logic [ 1:0]       s_axil_rresp,
    output logic              s_axil_rvalid,
    input  wire logic         s_axil_rready
);
  localparam logic [63:0] Cycle = 64'd419430;  // 6.4 ns
  // A second counts 156,250,000 of them: 0.4 of 2^-16 ns are added each time, two in five cycles.
  logic [2:0] fifth;

  logic rx_hdr_valid, rx_hdr_ready, rx_tvalid, rx_tready, rx_tlast, rx_tuser;
  logic tx_hdr_valid, tx_hdr_ready, tx_tvalid, tx_tready, tx_tlast;
  logic [31:0] rx_src_ip, tx_dst_ip;
  logic [15:0] rx_src_port, rx_length, tx_dst_port, tx_length, done;
  logic [63:0] stamp, rx_stamp, rx_tdata, tx_tdata;
  logic [7:0] rx_tkeep, tx_tkeep;

  always_ff @(posedge clk) begin
    fifth <= rst || fifth == 3'd4 ? 3'd0 : fifth + 3'd1;
    now   <= rst ? 64'd0 : now + Cycle + 64'(fifth == 3'd1 || fifth == 3'd3);
  end

  mqtick_cut_through way (
      .clk, .rst, .now, .s_tvalid, .s_tready, .s_tdata, .s_tend, .s_tlast, .s_terror,
      .m_tvalid, .m_tready, .m_tdata, .m_tend, .m_tlast, .m_frame, .m_stamp(stamp), .done, .bad);

  mqtick_liteeth_rx64 from_wire (
      .clk, .rst, .s_tvalid(rx_valid), .s_tready(rx_ready), .s_tdata(rx_data), .s_tend(rx_end),
      .s_tlast(rx_last), .s_ip(rx_ip), .s_port(rx_port), .s_octets(rx_octets), .s_frame(m_frame),
      .s_stamp(stamp), .done, .bad, .rx_hdr_valid, .rx_hdr_ready, .rx_src_ip, .rx_src_port,
      .rx_length, .rx_stamp, .rx_tdata, .rx_tkeep, .rx_tvalid, .rx_tready, .rx_tlast, .rx_tuser);

  mqtick_broker_boundary #(
      .TOPICS(TOPICS), .SUBSCRIPTIONS(SUBSCRIPTIONS), .CLIENTS(CLIENTS)
  ) broker (
      .clk, .rst, .rx_hdr_valid, .rx_hdr_ready, .rx_src_ip, .rx_src_port, .rx_length, .rx_stamp,
      .rx_tdata, .rx_tkeep, .rx_tvalid, .rx_tready, .rx_tlast, .rx_tuser, .tx_hdr_valid,
      .tx_hdr_ready, .tx_dst_ip, .tx_dst_port, .tx_length, .tx_fill(),  // all checksums are zero
      .tx_tdata, .tx_tkeep, .tx_tvalid, .tx_tready, .tx_tlast, .s_axil_awaddr, .s_axil_awvalid,
      .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready, .s_axil_bresp,
      .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready,
      .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready, .now, .tod_ns('0),
      .tod_valid(1'b0), .pps(1'b0), .seed, .seed_valid);

  mqtick_liteeth_tx64 to_wire (
      .clk, .rst, .tx_hdr_valid, .tx_hdr_ready, .tx_dst_ip, .tx_dst_port, .tx_length, .tx_tdata,
      .tx_tkeep, .tx_tvalid, .tx_tready, .tx_tlast, .m_tvalid(tx_valid), .m_tready(tx_ready),
      .m_tdata(tx_data), .m_tend(tx_end), .m_tlast(tx_last), .m_ip(tx_ip), .m_port(tx_port),
      .m_octets(tx_octets));
endmodule

`default_nettype wire
