// Holds each frame until its end has been seen, and lets only whole ones pass.
//
// Dropped: frames with a wrong checksum, fragments of IPv4 datagrams, frames that do not fit. What
// passes keeps the instant at which its first word came.
`default_nettype none

module mqtick_frame_gate #(
    parameter int unsigned WORDS_LOG2  = 10,
    parameter int unsigned FRAMES_LOG2 = 5
) (
    input  wire logic        clk,
    input  wire logic        rst,
    input  wire logic [63:0] now,

    input  wire logic        s_tvalid,   // always taken
    input  wire logic [31:0] s_tdata,
    input  wire logic [ 3:0] s_tend,     // one bit: which octet is the last
    input  wire logic        s_tlast,
    input  wire logic        s_terror,

    output logic        m_tvalid,
    input  wire logic   m_tready,
    output logic [31:0] m_tdata,
    output logic [ 3:0] m_tend,
    output logic        m_tlast,
    output logic [63:0] m_stamp,
    output logic        dropped
);
  typedef logic [WORDS_LOG2:0] place_t;
  typedef logic [FRAMES_LOG2:0] frame_t;

  logic [36:0] words[2**WORDS_LOG2];
  logic [63:0] stamps[2**FRAMES_LOG2];

  // ---- in ----------------------------------------------------------------------------------------
  place_t write, committed, read;
  frame_t frames_in, frames_out;
  logic inside_frame, bad, is_ipv4;
  logic [2:0] word;  // of the header; stays at 7
  logic [63:0] began;

  wire full = write - read == place_t'(2 ** WORDS_LOG2);
  wire frames_full = frames_in - frames_out == frame_t'(2 ** FRAMES_LOG2);
  // The type stands in octets 12 and 13, flags and offset of a fragment in octets 20 and 21.
  wire is_fragment = word == 3'd5 && is_ipv4 && (s_tdata[5:0] != 6'd0 || s_tdata[15:8] != 8'd0);
  wire bad_now = bad || s_terror || full || frames_full || is_fragment;

  always_ff @(posedge clk) begin
    if (s_tvalid && !full) words[write[WORDS_LOG2-1:0]] <= {s_tlast, s_tend, s_tdata};
    if (s_tvalid && s_tlast && !frames_full)
      stamps[frames_in[FRAMES_LOG2-1:0]] <= inside_frame ? began : now;
  end

  always_ff @(posedge clk) begin
    dropped <= 1'b0;
    if (s_tvalid) begin
      if (!inside_frame) began <= now;
      inside_frame <= !s_tlast;
      word <= s_tlast ? 3'd0 : word == 3'd7 ? word : word + 3'd1;
      if (word == 3'd3) is_ipv4 <= s_tdata[15:0] == 16'h0008;
      bad <= bad_now && !s_tlast;
      if (!s_tlast) begin
        if (!bad_now) write <= write + 1'b1;
      end else if (bad_now) begin
        write   <= committed;
        dropped <= 1'b1;
      end else begin
        write     <= write + 1'b1;
        committed <= write + 1'b1;
        frames_in <= frames_in + 1'b1;
      end
    end
    if (rst) begin
      write        <= '0;
      committed    <= '0;
      frames_in    <= '0;
      inside_frame <= 1'b0;
      bad          <= 1'b0;
      word         <= '0;
      dropped      <= 1'b0;
    end
  end

  // ---- out ---------------------------------------------------------------------------------------
  wire take = (!m_tvalid || m_tready) && read != committed;
  wire leaves = m_tvalid && m_tready && m_tlast;

  always_ff @(posedge clk) begin
    if (take) {m_tlast, m_tend, m_tdata} <= words[read[WORDS_LOG2-1:0]];
  end

  always_ff @(posedge clk) begin
    if (take) read <= read + 1'b1;
    if (!m_tvalid || m_tready) m_tvalid <= take;
    if (leaves) frames_out <= frames_out + 1'b1;
    if (rst) begin
      read       <= '0;
      m_tvalid   <= 1'b0;
      frames_out <= '0;
    end
  end

  assign m_stamp = stamps[frames_out[FRAMES_LOG2-1:0]];
endmodule

`default_nettype wire
