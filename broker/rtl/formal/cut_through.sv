// mqtick_cut_through: words leave in order, frame by frame. Of a bad frame nothing leaves unless it
// carries UDP, and then its verdict is known with its last word; what was filled is bad.
module cut_through (
    input logic        clk,
    input logic [63:0] now,
    input logic        s_tvalid,
    input logic [63:0] s_tdata,
    input logic [ 7:0] s_tend,
    input logic        s_tlast,
    input logic        s_terror,
    input logic        m_tready
);
  logic rst = 1;
  always_ff @(posedge clk) rst <= 0;

  logic s_tready, m_tvalid, m_tlast;
  logic [63:0] m_tdata, m_stamp;
  logic [ 7:0] m_tend;
  logic [ 3:0] m_frame;
  logic [15:0] done, bad;
  mqtick_cut_through #(.WORDS_LOG2(3), .FRAME_WORDS(4)) dut (.*);

  stream_holds #(77) frames (
      .clk, .rst, .valid(m_tvalid), .ready(m_tready), .word({m_tdata, m_tend, m_tlast, m_frame}));

  // Frames have four words at least. The module looks at no octet 0 to 3: there each word says that it came, whether its frame will
  // turn out bad, whether it carries UDP unfragmented, and its place.
  logic [7:0] in = 0, out = 0;
  logic wrong, udp;
  always_ff @(posedge clk) if (!rst) begin
    assume (s_tdata[31:11] == 0 && s_tdata[10:0] == {in, s_tdata[2:1], 1'b1});
    if (s_tvalid) begin
      if (in != 0) assume (s_tdata[2:1] == {udp, wrong});
      if (s_tlast) assume (s_tdata[1] == (s_terror || in < 3 || (in == 3 && s_tend < 8)));
      if (s_tdata[2] && in == 1) assume (s_tdata[47:32] == 16'h0008);
      if (s_tdata[2] && in == 2)
        assume (s_tdata[63:56] == 17 && s_tdata[47:40] == 0 && s_tdata[37:32] == 0);
      if (!s_tdata[2] && in == 1) assume (s_tdata[47:32] != 16'h0008);
    end
    if (s_tvalid && s_tready) begin
      in           <= s_tlast ? 8'd0 : in + 1'b1;
      {udp, wrong} <= s_tdata[2:1];
    end
    if (m_tvalid) begin
      if (m_tdata[0]) assert (m_tdata[10:3] == out && (m_tdata[2] || !m_tdata[1]));
      if (m_tlast) assert (done[m_frame] && (bad[m_frame] || (m_tdata[0] && !m_tdata[1])));
    end
    if (m_tvalid && m_tready) out <= m_tlast ? 8'd0 : out + 1'b1;
  end
endmodule
