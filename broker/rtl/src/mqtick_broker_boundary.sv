// The broker with the place where the residence is written: what a UDP/IP core is joined to when
// it has no stamps of its own.
module mqtick_broker_boundary
#(
  parameter int TOPICS = 65536,
  parameter int SUBSCRIPTIONS = 65536,
  parameter int CLIENTS = 16384,
  parameter int SHAPES = 8,
  parameter int KEY_POOL = 4096,         // keys that need more than seven pieces
  parameter int SLOTS = 8,               // datagrams in the packet buffer
  parameter int RETAINED = 64,
  parameter int RETAINED_OCTETS = 1024,  // of payload
  parameter int TAG = 16,                // bits of a topic's hash in the table: tests take few
  parameter bit LOOPBACK_DOOR = 0        // 127.0.0.0/8 may send
) (
  input  logic         clk,
  input  logic         rst,
  input  logic         rx_hdr_valid,
  output logic         rx_hdr_ready,
  input  logic [31:0]  rx_src_ip,
  input  logic [15:0]  rx_src_port,
  input  logic [15:0]  rx_length,
  input  logic [63:0]  rx_stamp,
  input  logic [63:0]  rx_tdata,
  input  logic [7:0]   rx_tkeep,
  input  logic         rx_tvalid,
  output logic         rx_tready,
  input  logic         rx_tlast,
  input  logic         rx_tuser,
  output logic         tx_hdr_valid,
  input  logic         tx_hdr_ready,
  output logic [31:0]  tx_dst_ip,
  output logic [15:0]  tx_dst_port,
  output logic [15:0]  tx_length,
  output logic         tx_fill,
  output logic [63:0]  tx_tdata,
  output logic [7:0]   tx_tkeep,
  output logic         tx_tvalid,
  input  logic         tx_tready,
  output logic         tx_tlast,
  input  logic [11:0]  s_axil_awaddr,
  input  logic         s_axil_awvalid,
  output logic         s_axil_awready,
  input  logic [31:0]  s_axil_wdata,
  input  logic [3:0]   s_axil_wstrb,
  input  logic         s_axil_wvalid,
  output logic         s_axil_wready,
  output logic [1:0]   s_axil_bresp,
  output logic         s_axil_bvalid,
  input  logic         s_axil_bready,
  input  logic [11:0]  s_axil_araddr,
  input  logic         s_axil_arvalid,
  output logic         s_axil_arready,
  output logic [31:0]  s_axil_rdata,
  output logic [1:0]   s_axil_rresp,
  output logic         s_axil_rvalid,
  input  logic         s_axil_rready,
  input  logic [63:0]  now,
  input  logic [63:0]  tod_ns,
  input  logic         tod_valid,
  input  logic         pps,
  input  logic [127:0] seed,
  input  logic         seed_valid
);

  logic b_hdr_valid, b_hdr_ready, b_tvalid, b_tready, b_tlast;
  logic [63:0] b_arrival, b_tdata;
  logic [7:0] b_tkeep;

  mqtick_broker #(
    .TOPICS(TOPICS), .SUBSCRIPTIONS(SUBSCRIPTIONS), .CLIENTS(CLIENTS), .SHAPES(SHAPES),
    .KEY_POOL(KEY_POOL), .SLOTS(SLOTS), .RETAINED(RETAINED), .RETAINED_OCTETS(RETAINED_OCTETS),
    .TAG(TAG), .LOOPBACK_DOOR(LOOPBACK_DOOR)
  ) u_broker (
    .clk, .rst, .rx_hdr_valid, .rx_hdr_ready, .rx_src_ip, .rx_src_port, .rx_length, .rx_stamp,
    .rx_tdata, .rx_tkeep, .rx_tvalid, .rx_tready, .rx_tlast, .rx_tuser, .tx_hdr_valid(b_hdr_valid),
    .tx_hdr_ready(b_hdr_ready), .tx_dst_ip, .tx_dst_port, .tx_length, .tx_fill,
    .tx_arrival(b_arrival), .tx_tdata(b_tdata), .tx_tkeep(b_tkeep), .tx_tvalid(b_tvalid),
    .tx_tready(b_tready), .tx_tlast(b_tlast), .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready,
    .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready, .s_axil_bresp, .s_axil_bvalid,
    .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata, .s_axil_rresp,
    .s_axil_rvalid, .s_axil_rready, .now, .tod_ns, .tod_valid, .pps, .seed, .seed_valid
  );

  mqtick_departure u_departure (
    .clk, .rst, .now, .in_hdr_valid(b_hdr_valid), .in_hdr_ready(b_hdr_ready),
    .in_length(tx_length), .in_fill(tx_fill), .in_arrival(b_arrival), .in_tdata(b_tdata),
    .in_tkeep(b_tkeep), .in_tvalid(b_tvalid), .in_tready(b_tready), .in_tlast(b_tlast),
    .out_hdr_valid(tx_hdr_valid), .out_hdr_ready(tx_hdr_ready), .out_tdata(tx_tdata),
    .out_tkeep(tx_tkeep), .out_tvalid(tx_tvalid), .out_tready(tx_tready), .out_tlast(tx_tlast));

endmodule
