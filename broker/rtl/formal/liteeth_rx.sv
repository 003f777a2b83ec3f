// mqtick_liteeth_rx: both streams hold their words, and each word that comes leaves, in order.
module liteeth_rx (
    input logic        clk,
    input logic        s_tvalid,
    input logic [31:0] s_tdata,
    input logic [ 3:0] s_tend,
    input logic        s_tlast,
    input logic [31:0] s_ip,
    input logic [15:0] s_port,
    input logic [15:0] s_octets,
    input logic [63:0] s_stamp,
    input logic        rx_hdr_ready,
    input logic        rx_tready
);
  logic rst = 1;
  always_ff @(posedge clk) rst <= 0;

  logic s_tready, rx_hdr_valid, rx_tvalid, rx_tlast, rx_tuser;
  logic [31:0] rx_src_ip;
  logic [15:0] rx_src_port, rx_length;
  logic [63:0] rx_stamp, rx_tdata;
  logic [7:0] rx_tkeep;
  mqtick_liteeth_rx dut (.*);

  stream_holds #(69, 1) given (
      .clk, .rst, .valid(s_tvalid), .ready(s_tready), .word({s_tdata, s_tend, s_tlast, s_ip}));
  stream_holds #(74) payload (
      .clk, .rst, .valid(rx_tvalid), .ready(rx_tready),
      .word({rx_tdata, rx_tkeep, rx_tlast, rx_tuser}));
  stream_holds #(128) header (
      .clk, .rst, .valid(rx_hdr_valid), .ready(rx_hdr_ready),
      .word({rx_src_ip, rx_src_port, rx_length, rx_stamp}));

  // The module does not look at the data, so that words that carry their number show the order.
  logic [5:0] in = 0, out = 0;
  logic ends = 0;  // the last word that came was a datagram's last
  logic [3:0] keep;
  wire [3:0] own = s_octets[1:0] == 0 ? 4'hf : (4'd1 << s_octets[1:0]) - 4'd1;
  always_ff @(posedge clk) if (!rst) begin
    assume (s_tdata == 32'(in));
    assume (s_tend == 1 || s_tend == 2 || s_tend == 4 || s_tend == 8);
    if (s_tvalid && s_tready) begin
      in   <= in + 1'b1;
      ends <= s_tlast;
      keep <= s_tlast ? (s_tend | (s_tend - 4'd1)) & own : 4'hf;
    end
    assert (!rx_tvalid || out < in);
    if (rx_tvalid) begin
      assert (rx_tdata[31:0] == 32'(out));
      if (rx_tkeep[4]) assert (rx_tdata[63:32] == 32'(out) + 1 && rx_tkeep[3:0] == 4'hf);
      assert (rx_tlast || rx_tkeep == 8'hff);
      // It leaves before what comes after it, so that what came last says how it ends.
      if (out + (rx_tkeep[4] ? 6'd2 : 6'd1) == in) begin
        assert (rx_tlast == ends);
        if (ends) assert ((rx_tkeep[4] ? rx_tkeep[7:4] : rx_tkeep[3:0]) == keep);
      end
    end
    if (rx_tvalid && rx_tready) out <= out + (rx_tkeep[4] ? 6'd2 : 6'd1);
  end
endmodule
