// The broker between what tests need each cycle: a clock that counts and jumps, receivers that are
// not always ready, and word of when all is done. None of it is synthesized.
module mqtick_bench #(
  parameter int TOPICS = 256,
  parameter int SUBSCRIPTIONS = 256,
  parameter int CLIENTS = 128,
  parameter int SHAPES = 8,
  parameter int KEY_POOL = 16,
  parameter int SLOTS = 4,
  parameter int RETAINED = 64,
  parameter int TAG = 16,
  parameter bit LOOPBACK_DOOR = 0
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
  output logic         tx_hdr_ready,
  output logic [31:0]  tx_dst_ip,
  output logic [15:0]  tx_dst_port,
  output logic [15:0]  tx_length,
  output logic         tx_fill,
  output logic [63:0]  tx_tdata,
  output logic [7:0]   tx_tkeep,
  output logic         tx_tvalid,
  output logic         tx_tready,
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
  input  logic [63:0]  tod_ns,
  input  logic         tod_valid,
  input  logic         pps,
  input  logic [127:0] seed,
  input  logic         seed_valid,
  // of the bench
  input  logic         jump,
  input  logic [63:0]  jump_to,
  output logic [63:0]  now,
  input  logic [7:0]   hdr_pressure,   // of 256 cycles, so many are not ready
  input  logic [7:0]   word_pressure,
  output logic         quiet           // nothing is in the broker, and nothing came out for long
);

  localparam logic [63:0] CYCLE = 64'd419_430;  // 6.4 ns

  logic [31:0] random;
  logic [6:0] still;
  logic moving;

  assign moving = rx_hdr_valid || rx_tvalid || tx_hdr_valid || tx_tvalid || |u_broker.u_broker.u_receive.busy
    || !u_broker.u_broker.idle || u_broker.u_broker.control_busy;
  assign quiet = still == 7'd24;
  assign tx_hdr_ready = random[7:0] >= hdr_pressure;
  assign tx_tready = random[15:8] >= word_pressure;

  always_ff @(posedge clk) begin
    random <= rst ? 32'h1234_5678 : {random[30:0], random[31] ^ random[21] ^ random[1] ^ random[0]};
    now <= jump ? jump_to : now + CYCLE;
    still <= rst || moving ? 7'd0 : quiet ? still : still + 7'd1;
  end

  mqtick_broker_boundary #(
    .TOPICS(TOPICS), .SUBSCRIPTIONS(SUBSCRIPTIONS), .CLIENTS(CLIENTS), .SHAPES(SHAPES),
    .KEY_POOL(KEY_POOL), .SLOTS(SLOTS), .RETAINED(RETAINED), .TAG(TAG),
    .LOOPBACK_DOOR(LOOPBACK_DOOR)
  ) u_broker (.*);

endmodule
