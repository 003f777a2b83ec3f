// mqtick_liteeth_tx: the stream holds its words, each octet that comes leaves in order, and a frame
// begins only when the wire has carried the one before.
module liteeth_tx (
    input logic        clk,
    input logic        tx_hdr_valid,
    input logic [31:0] tx_dst_ip,
    input logic [15:0] tx_dst_port,
    input logic [15:0] tx_length,
    input logic [63:0] tx_tdata,
    input logic [ 7:0] tx_tkeep,
    input logic        tx_tvalid,
    input logic        tx_tlast,
    input logic        m_tready
);
  logic rst = 1;
  always_ff @(posedge clk) rst <= 0;

  logic tx_hdr_ready, tx_tready, m_tvalid, m_tlast;
  logic [31:0] m_tdata, m_ip;
  logic [15:0] m_port, m_octets;
  logic [3:0] m_tend;
  mqtick_liteeth_tx dut (.*);

  stream_holds #(73, 1) given (
      .clk, .rst, .valid(tx_tvalid), .ready(tx_tready), .word({tx_tdata, tx_tkeep, tx_tlast}));
  stream_holds #(101) datagram (
      .clk, .rst, .valid(m_tvalid), .ready(m_tready),
      .word({m_tdata, m_tend, m_tlast, m_ip, m_port, m_octets}));

  // The module does not look at the data, so that words that carry their number show the order.
  logic [5:0] in = 0, out = 0;
  logic [15:0] since = 16'hffff, needed = 0;  // bits of the wire
  always_ff @(posedge clk) if (!rst) begin
    assume (tx_tkeep == 8'hff || (tx_tlast && tx_tkeep != 0 && (tx_tkeep & (tx_tkeep + 8'd1)) == 0));
    assume (tx_tdata == {32'(in) + 32'd1, 32'(in)});
    if (m_tvalid && m_tready) begin
      out <= out + 1'b1;
      assert (m_tlast ? m_tend == 1 || m_tend == 2 || m_tend == 4 || m_tend == 8 : m_tend == 0);
      assert (m_tdata == 32'(out));
    end
    if (tx_tvalid && tx_tready) in <= in + (tx_tkeep[4] ? 6'd2 : 6'd1);
    assume (tx_length <= 16'd1472);
    // From one frame's header to the next at least the time of the frame, to a cycle.
    since <= since > 16'hff00 ? since : since + 16'd25;
    if (tx_hdr_valid && tx_hdr_ready) begin
      assert (since >= needed);
      since  <= 16'd25;
      needed <= 8 * (20 + (tx_length + 46 < 64 ? 64 : tx_length + 46));
    end
  end
endmodule
