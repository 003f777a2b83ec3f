// Lets a frame that carries UDP pass while it comes, and says afterwards whether it was good.
//
// All else, and fragments, are held until their end was seen, and dropped if they are bad. Whoever
// takes a UDP frame asks by its number for the verdict: `done`, then `bad`. A frame that does not
// fit is cut, one that is too short is filled; both are bad, and what follows stays in step.
`default_nettype none

module mqtick_cut_through #(
    parameter int unsigned WORDS_LOG2 = 6,
    parameter int unsigned FRAME_WORDS = 8  // of a frame of 60 octets
) (
    input  wire logic        clk,
    input  wire logic        rst,
    input  wire logic [63:0] now,

    input  wire logic        s_tvalid,
    output logic             s_tready,
    input  wire logic [63:0] s_tdata,
    input  wire logic [ 7:0] s_tend,     // one bit: which octet is the last
    input  wire logic        s_tlast,
    input  wire logic        s_terror,   // with the last word

    output logic        m_tvalid,
    input  wire logic   m_tready,
    output logic [63:0] m_tdata,
    output logic [ 7:0] m_tend,
    output logic        m_tlast,
    output logic [ 3:0] m_frame,  // its number
    output logic [63:0] m_stamp,  // when its first word came
    output logic [15:0] done,     // of each frame: its end was seen
    output logic [15:0] bad
);
  localparam logic [3:0] Words = 4'(FRAME_WORDS);
  typedef logic [WORDS_LOG2:0] place_t;

  logic [72:0] words[2**WORDS_LOG2];
  logic [63:0] stamps[16];
  place_t write, first, read;  // `first`: of the frame that comes
  logic [3:0] frame, word;     // word of the frame; stays at 8
  logic inside_frame, skips, is_ipv4, fragment, flows, filling;

  // ---- in ----------------------------------------------------------------------------------------
  wire place_t room = place_t'(2 ** WORDS_LOG2) - (write - read);
  assign s_tready = !filling;
  wire comes = s_tvalid && s_tready;
  // A frame begins only where there is room for one that has to be filled.
  wire takes = comes && !(inside_frame ? skips : room <= place_t'(Words));
  wire cut = takes && room == place_t'(1) && !s_tlast;
  wire ends = takes && (s_tlast || cut);

  // The type stands in octets 12 and 13, flags and offset of a fragment in octets 20 and 21, the
  // protocol in octet 23.
  wire header = takes && word == 4'd2 && is_ipv4;
  wire is_fragment = header && (s_tdata[37:32] != 6'd0 || s_tdata[47:40] != 8'd0);
  wire flows_now = flows || (header && !is_fragment && s_tdata[63:56] == 8'd17 && !ends);
  wire short = word < Words - 4'd1 || (word == Words - 4'd1 && s_tend < 8'h08);
  wire is_bad = s_terror || cut || short || fragment || is_fragment;
  wire fill = flows_now && word < Words - 4'd1;
  wire leaves = m_tvalid && m_tready;

  always_ff @(posedge clk) begin
    if (takes) words[write[WORDS_LOG2-1:0]] <= {ends && !fill, cut ? 8'h80 : s_tend, s_tdata};
    else if (filling) words[write[WORDS_LOG2-1:0]] <= {word == Words - 4'd1, 8'h80, 64'd0};
    if (comes && !inside_frame) stamps[frame] <= now;
  end

  always_ff @(posedge clk) begin
    if (comes) begin
      inside_frame <= !s_tlast;
      skips        <= !s_tlast && (!takes || cut);
    end
    if (takes) begin
      word     <= ends && !fill ? 4'd0 : word == Words ? word : word + 4'd1;
      write    <= write + 1'b1;
      flows    <= flows_now;
      is_ipv4  <= word == 4'd1 ? s_tdata[47:32] == 16'h0008 : is_ipv4 && !ends;
      fragment <= (fragment || is_fragment) && !ends;
      if (!inside_frame) done[frame] <= 1'b0;
      if (ends) begin
        if (flows_now || !is_bad) begin
          done[frame] <= 1'b1;
          bad[frame]  <= is_bad;
          if (fill) filling <= 1'b1;
          else begin
            frame <= frame + 1'b1;
            first <= write + 1'b1;
            flows <= 1'b0;
          end
        end else write <= first;
      end
    end else if (filling) begin
      word  <= word + 4'd1;
      write <= write + 1'b1;
      if (word == Words - 4'd1) begin
        word    <= 4'd0;
        filling <= 1'b0;
        frame   <= frame + 1'b1;
        first   <= write + 1'b1;
        flows   <= 1'b0;
      end
    end
    if (rst) begin
      {write, first, frame, word} <= '0;
      {inside_frame, skips, is_ipv4, fragment, flows, filling} <= '0;
    end
  end

  // ---- out ---------------------------------------------------------------------------------------
  assign m_tvalid = read != (flows_now ? write : first);
  assign {m_tlast, m_tend, m_tdata} = words[read[WORDS_LOG2-1:0]];
  assign m_stamp = stamps[m_frame];

  always_ff @(posedge clk) begin
    if (leaves) read <= read + 1'b1;
    if (leaves && m_tlast) m_frame <= m_frame + 1'b1;
    if (rst) begin
      read    <= '0;
      m_frame <= '0;
    end
  end
endmodule

`default_nettype wire
