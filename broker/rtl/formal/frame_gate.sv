// mqtick_frame_gate: what leaves are the frames without an error, whole, in order, each with the
// stamp of its first word; a frame with an error is dropped.
module frame_gate (
    input logic        clk,
    input logic [63:0] now,
    input logic        s_tvalid,
    input logic [31:0] s_tdata,
    input logic [ 3:0] s_tend,
    input logic        s_tlast,
    input logic        s_terror,
    input logic        m_tready
);
  logic rst = 1;
  always_ff @(posedge clk) rst <= 0;

  logic m_tvalid, m_tlast, dropped;
  logic [31:0] m_tdata;
  logic [ 3:0] m_tend;
  logic [63:0] m_stamp;
  mqtick_frame_gate #(.WORDS_LOG2(2), .FRAMES_LOG2(1)) dut (.*);

  stream_holds #(101) frames (
      .clk, .rst, .valid(m_tvalid), .ready(m_tready), .word({m_tdata, m_tend, m_tlast, m_stamp}));

  // Frames have up to four words, so that the module does not look at the data: each word carries
  // its number among those that are kept, its end, and when its frame began.
  logic [5:0] clock = 0, kept = 0, length = 0, out = 0;
  logic ended = 0, going = 0, wrong = 0, damaged = 0;
  logic [5:0] began;
  // Whether a frame was dropped is said one cycle after its end.
  wire [5:0] base = ended && !dropped ? kept + length : kept;
  wire [5:0] at = ended ? 6'd0 : length;
  wire [5:0] start = going ? began : clock;
  always_ff @(posedge clk) begin
    clock <= clock + 1'b1;
    assume (now == 64'(clock));
    assume (s_tdata == {start, s_tend, s_tlast, base + at, 15'd0});
    if (!rst) begin
      kept   <= base;
      ended  <= s_tvalid && s_tlast;
      length <= at + 6'(s_tvalid);
      if (s_tvalid) begin
        going  <= !s_tlast;
        began   <= start;
        wrong   <= !s_tlast && (s_terror || wrong);
        damaged <= s_terror || wrong;
      end
      if (dropped) assert (ended);
      if (ended && damaged) assert (dropped);
      if (m_tvalid) begin
        assert (out < kept);
        assert (m_tdata == {6'(m_stamp), m_tend, m_tlast, out, 15'd0});
      end
      if (m_tvalid && m_tready) out <= out + 1'b1;
    end
  end
endmodule
