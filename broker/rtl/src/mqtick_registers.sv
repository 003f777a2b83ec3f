// Settings, state and counters, as ../registers.md lists them.
module mqtick_registers
#(
  parameter int SHAPES = 8,
  parameter int SIZES = 0
) (
  input  logic        clk,
  input  logic        rst,
  input  logic        clear,
  input  logic [15:0] clear_at,
  input  logic        ready,
  input  logic [11:0] s_axil_awaddr,
  input  logic        s_axil_awvalid,
  output logic        s_axil_awready,
  input  logic [31:0] s_axil_wdata,
  input  logic [3:0]  s_axil_wstrb,
  input  logic        s_axil_wvalid,
  output logic        s_axil_wready,
  output logic [1:0]  s_axil_bresp,
  output logic        s_axil_bvalid,
  input  logic        s_axil_bready,
  input  logic [11:0] s_axil_araddr,
  input  logic        s_axil_arvalid,
  output logic        s_axil_arready,
  output logic [31:0] s_axil_rdata,
  output logic [1:0]  s_axil_rresp,
  output logic        s_axil_rvalid,
  input  logic        s_axil_rready,
  // settings
  output logic [11:0] lease_s,
  output logic [5:0]  shape_limit,
  output logic [5:0]  share_entries,
  output logic [15:0] share_clients,
  output logic [3:0]  prefix_pieces,
  input  logic [2:0]  prefix_at,
  output logic [31:0] prefix,
  input  logic [1:0]  subnet_at,
  output logic [63:0] publishers,
  output logic [63:0] subscribers,
  // state
  input  logic [31:0] topics,
  input  logic [31:0] entries,
  input  logic [31:0] clients,
  input  logic [31:0] tick,
  input  logic [15:0] epoch,
  // counters
  input  logic        count,
  input  logic [4:0]  count_what,
  input  logic        copy,
  // time of day, caught with the counter at each pulse
  input  logic [63:0] now,
  input  logic [63:0] tod_ns,
  input  logic        tod_valid,
  input  logic        pps
);

  localparam logic [1:0] OKAY = 0, SLVERR = 2;

  logic [31:0] counters [32];
  logic [31:0] pieces [8];
  logic [31:0] publisher [4], publisher_mask [4], subscriber [4], subscriber_mask [4];
  logic [31:0] copies, pulses;
  logic [63:0] now_at_pulse, tod_at_pulse;
  logic tod_was_valid;
  logic [2:0] pps_seen;

  assign prefix = pieces[prefix_at];
  assign publishers = {publisher[subnet_at], publisher_mask[subnet_at]};
  assign subscribers = {subscriber[subnet_at], subscriber_mask[subnet_at]};

  // ---- writing ----------------------------------------------------------------------------------

  logic write, good;
  logic [9:0] w;
  logic [31:0] data;
  assign write = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid && !clear;
  assign s_axil_awready = write;
  assign s_axil_wready = write;
  assign data = s_axil_wdata;
  assign w = s_axil_awaddr[11:2];
  assign good = write && s_axil_wstrb == 4'hf && s_axil_awaddr[1:0] == 0 && w >= 10'h03
    && w < 10'h20;

  // While the tables are cleared: everybody in the first subnet, nobody in the others, and the
  // prefix `mqtick`.
  logic [1:0] subnet_in;
  logic [2:0] piece_in;
  logic [31:0] none;
  assign subnet_in = clear ? clear_at[1:0] : w[2:1];
  assign piece_in = clear ? clear_at[2:0] : w[2:0];
  assign none = clear_at[1:0] == 0 ? 32'd0 : 32'hffff_ffff;

  always_ff @(posedge clk) begin
    if (clear || (good && w[9:3] == 1))
      pieces[piece_in] <= !clear ? data : piece_in == 0 ? "itqm" : piece_in == 1 ? "kc" : 32'd0;
    if (clear || (good && w[9:3] == 2 && !w[0])) publisher[subnet_in] <= clear ? none : data;
    if (clear || (good && w[9:3] == 2 && w[0])) publisher_mask[subnet_in] <= clear ? 0 : data;
    if (clear || (good && w[9:3] == 3 && !w[0])) subscriber[subnet_in] <= clear ? none : data;
    if (clear || (good && w[9:3] == 3 && w[0])) subscriber_mask[subnet_in] <= clear ? 0 : data;
    if (clear || count)
      counters[clear ? clear_at[4:0] : count_what]
        <= clear ? 32'd0 : counters[count_what] + 32'd1;
    if (rst) begin
      s_axil_bvalid <= 0;
      s_axil_bresp <= OKAY;
      lease_s <= 60;
      shape_limit <= 6'(SHAPES);
      share_entries <= 32;
      share_clients <= 1024;
      prefix_pieces <= 2;
      copies <= 0;
    end else begin
      if (s_axil_bready) s_axil_bvalid <= 0;
      if (write) begin
        s_axil_bvalid <= 1;
        s_axil_bresp <= good ? OKAY : SLVERR;
      end
      if (good)
        case (w)
          10'h03: lease_s <= data < 1 ? 12'd1 : data > 3600 ? 12'd3600 : data[11:0];
          10'h04: shape_limit <= data > SHAPES ? 6'(SHAPES) : data[5:0];
          10'h05: share_entries <= data > 32 ? 6'd32 : data[5:0];
          10'h06: share_clients <= data > 32'hffff ? 16'hffff : data[15:0];
          10'h07: prefix_pieces <= data > 8 ? 4'd8 : data[3:0];
          default: ;
        endcase
      if (copy) copies <= copies + 1'b1;
    end
  end

  // ---- time of day ------------------------------------------------------------------------------

  always_ff @(posedge clk)
    if (rst) begin
      pps_seen <= 0;
      pulses <= 0;
      now_at_pulse <= 0;
      tod_at_pulse <= 0;
      tod_was_valid <= 0;
    end else begin
      pps_seen <= {pps_seen[1:0], pps};
      if (pps_seen[1] && !pps_seen[2]) begin
        pulses <= pulses + 1'b1;
        now_at_pulse <= now;
        tod_at_pulse <= tod_ns;
        tod_was_valid <= tod_valid;
      end
    end

  // ---- reading ----------------------------------------------------------------------------------

  logic [9:0] r;
  logic [31:0] value;
  assign r = s_axil_araddr[11:2];
  assign s_axil_arready = !s_axil_rvalid;
  always_comb begin
    value = 0;
    case (r)
      10'h00: value = mqtick_pkg::VERSION;
      10'h01: value = SIZES;
      10'h02: value = {30'd0, tod_was_valid, ready};
      10'h03: value = 32'(lease_s);
      10'h04: value = 32'(shape_limit);
      10'h05: value = 32'(share_entries);
      10'h06: value = 32'(share_clients);
      10'h07: value = 32'(prefix_pieces);
      10'h20: value = topics;
      10'h21: value = entries;
      10'h22: value = clients;
      10'h23: value = tick;
      10'h24: value = 32'(epoch);
      10'h28: value = pulses;
      10'h29: value = now_at_pulse[31:0];
      10'h2a: value = now_at_pulse[63:32];
      10'h2b: value = tod_at_pulse[31:0];
      10'h2c: value = tod_at_pulse[63:32];
      10'h57: value = copies;
      default:
        if (r[9:3] == 1) value = pieces[r[2:0]];
        else if (r[9:3] == 2) value = r[0] ? publisher_mask[r[2:1]] : publisher[r[2:1]];
        else if (r[9:3] == 3) value = r[0] ? subscriber_mask[r[2:1]] : subscriber[r[2:1]];
        else if (r[9:5] == 2) value = counters[r[4:0]];
    endcase
  end

  always_ff @(posedge clk)
    if (rst) s_axil_rvalid <= 0;
    else begin
      if (s_axil_rready) s_axil_rvalid <= 0;
      if (s_axil_arvalid && s_axil_arready) begin
        s_axil_rvalid <= 1;
        s_axil_rdata <= value;
        s_axil_rresp <= s_axil_araddr[1:0] == 0 ? OKAY : SLVERR;
      end
    end

  logic unused;
  assign unused = &{1'b0, clear_at};

endmodule
