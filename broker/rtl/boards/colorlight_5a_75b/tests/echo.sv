// In place of the broker: sends each datagram back, if it is not to be dropped and as long as it says.
module mqtick_broker_boundary #(
    parameter int TOPICS = 0,
    parameter int SUBSCRIPTIONS = 0,
    parameter int CLIENTS = 0,
    parameter int SHAPES = 0,
    parameter int KEY_POOL = 0,
    parameter int SLOTS = 0,
    parameter int RETAINED = 0,
    parameter int RETAINED_OCTETS = 0
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
  // Datagrams of up to 2 KiB; its last word says whether one is to be dropped.
  logic [72:0] words[256];
  logic [7:0] got, sent;
  logic [111:0] header;
  logic [15:0] octets;  // of the words before this one
  wire [15:0] length = octets + 16'($countones(rx_tkeep));
  enum {REST, TAKE, HEADER, SEND} state;

  assign rx_hdr_ready = state == REST && seed_valid;
  assign rx_tready = state == TAKE;
  assign tx_hdr_valid = state == HEADER;
  assign tx_tvalid = state == SEND;
  assign {tx_dst_ip, tx_dst_port, tx_length} = header[63:0];
  assign {tx_tlast, tx_tkeep, tx_tdata} = words[sent];
  assign tx_fill = 0;
  assign {s_axil_awready, s_axil_wready, s_axil_bresp, s_axil_bvalid, s_axil_arready} = '0;
  assign {s_axil_rdata, s_axil_rresp, s_axil_rvalid} = '0;

  always_ff @(posedge clk)
    if (rst) state <= REST;
    else
      case (state)
        REST: if (rx_hdr_valid && rx_hdr_ready) begin
          header <= {48'd0, rx_src_ip, rx_src_port, rx_length};
          got <= 0;
          octets <= 0;
          sent <= 0;
          state <= TAKE;
        end
        TAKE: if (rx_tvalid) begin
          words[got] <= {rx_tlast, rx_tkeep, rx_tdata};
          got <= got + 1'b1;
          octets <= length;
          if (rx_tlast) state <= rx_tuser || length != header[15:0] ? REST : HEADER;
        end
        HEADER: if (tx_hdr_ready) state <= SEND;
        default: if (tx_tready) begin
          sent <= sent + 1'b1;
          if (tx_tlast) state <= REST;
        end
      endcase
endmodule
