// Judges each datagram in the order of section 7, as its octets come, and hands on what is good:
// a PUBLISH to the look-up, everything else to the control. A datagram has no effect before all
// of it is there and known to be whole.
module mqtick_parser
#(
  parameter int SLOTS = 4,
  parameter bit LOOPBACK_DOOR = 0,
  localparam int SB = $clog2(SLOTS)
) (
  input  logic          clk,
  input  logic          rst,
  input  logic          ready,
  output logic [SB-1:0] slot,
  input  logic          started,
  input  logic          complete,
  input  logic          damaged,
  input  logic [7:0]    words,
  input  logic [7:0]    network,       // first octet of the sender's address
  input  logic [15:0]   port,
  input  logic [15:0]   length,
  input  logic [63:0]   stamp,
  input  logic          may_publish,
  input  logic          may_subscribe,
  output logic          free,          // the slot
  output logic          passed,        // on to the next slot
  output logic [10:0]   at,
  input  logic [31:0]   window,
  // topic
  output logic          text_start,
  output logic [10:0]   text_at,
  output logic [6:0]    text_length,
  input  logic          text_done,
  input  logic          text_bad,
  input  logic          text_reserved,
  input  logic          text_below,
  input  logic          hash_ready,
  // a PUBLISH
  output logic          look,
  input  logic          look_ready,
  output mqtick_pkg::record_t rec,
  output logic          keep,          // it is a retained message
  input  logic          keep_done,
  output logic          keep_trailer,
  input  logic          idle,          // nothing is looked up or sent
  input  logic          room,          // for one more to be sent
  // another packet
  output logic          control,
  input  logic          control_busy,
  input  logic          control_done,
  output logic [3:0]    kind,
  output logic [10:0]   body,
  input  logic          sweep_due,
  output logic          sweep,
  output logic          count,
  output logic [4:0]    count_what
);

  typedef enum logic [3:0] {
    WAIT, SWEEP, HEAD, LONG, PROOF_LOW, PROOF_HIGH, SECTION, RUN, JUDGE, VERSION_READ,
    TRAILER_READ, KEEP, CONTROL, DROP
  } state_t;
  state_t state;

  logic [4:0] reason;
  logic retain, proves, not_proof, wait_done, pending;
  logic [15:0] topic_length;
  logic [10:0] payload;  // where it begins
  logic [63:0] residence;
  logic trailer, chained;
  logic [1:0] quarter;   // of the trailer
  logic [1:0] source;
  mqtick_pkg::record_t made;

  // ---- the fixed header -------------------------------------------------------------------------

  logic [7:0] octet0, octet1, octet2;
  logic two;             // octets of the remaining length
  logic [15:0] octets;   // of the packet, as it says
  logic fails;
  logic [4:0] why;
  assign {octet2, octet1, octet0} = window[23:0];
  assign two = octet1[7];
  assign octets = two ? 16'({octet2[6:0], octet1[6:0]}) + 16'd3 : 16'(octet1) + 16'd2;
  always_comb begin
    fails = 1;
    why = mqtick_pkg::SOURCE;
    if (port == 0 || network == 0 || network >= 224 || (network == 127 && !LOOPBACK_DOOR))
      why = mqtick_pkg::SOURCE;
    else if (length > 1472) why = mqtick_pkg::OVERSIZED;
    else if (length < 2 || octets != length || (two && (octet2[7] || octet2 == 0)))
      why = mqtick_pkg::LENGTH;
    else
      case (octet0[7:4])
        mqtick_pkg::PUBLISH: begin
          why = mqtick_pkg::QOS;
          fails = octet0[3:1] != 0;
        end
        mqtick_pkg::CONNECT, mqtick_pkg::SUBSCRIBE, mqtick_pkg::UNSUBSCRIBE, mqtick_pkg::PINGREQ,
        mqtick_pkg::DISCONNECT: begin
          why = mqtick_pkg::FLAGS;
          fails = octet0[3:0] != (octet0[7:4] == mqtick_pkg::SUBSCRIBE
            || octet0[7:4] == mqtick_pkg::UNSUBSCRIBE ? 4'd2 : 4'd0);
          if (!fails && !may_subscribe) begin
            why = mqtick_pkg::SUBNET;
            fails = 1;
          end
        end
        default: why = mqtick_pkg::TYPE;
      endcase
  end

  always_comb
    case (state)
      HEAD: at = 3;
      LONG: at = 5;
      SECTION: at = body + 11'd2;
      PROOF_LOW: at = body + 11'd6;
      JUDGE: at = payload;
      VERSION_READ: at = length[10:0] - 11'd16;
      TRAILER_READ: at = length[10:0] - 11'd12 + {7'd0, quarter, 2'd0};
      default: at = 0;
    endcase

  assign text_start = state == SECTION && !pending && (topic_length != 6 || not_proof)
    && may_publish && 17'(body) + 17'd2 + 17'(topic_length) <= 17'(length) && topic_length != 0
    && topic_length <= 64;
  assign text_at = body + 11'd2;
  assign text_length = topic_length[6:0];
  assign look = pending && hash_ready && look_ready && room && !control_busy;
  assign keep_trailer = trailer;

  // What is made of the datagram if it is a message.
  always_comb begin
    made = '0;
    made.place = 8'(slot);
    made.length = length[10:0];
    made.arrival = stamp;
    made.trailer = trailer;
    if (trailer) begin
      made.arrival = stamp - residence;
      made.unstated = chained && (source == 0 || residence[63:48] == 16'hffff);
      made.source = source;
      made.chained = chained;
    end
  end

  assign passed = free || (state == JUDGE && hand) || (state == KEEP && hand);
  logic hand;  // the message is made and can be given on
  logic candidate;
  logic [15:0] payload_length;
  assign payload_length = length - 16'(payload);
  assign candidate = text_below && payload_length >= 17 && payload_length <= 64;
  always_comb begin
    hand = 0;
    if (state == JUDGE) hand = complete && !damaged && !text_bad && !text_reserved && !candidate
      && !retain && !pending;
    if (state == KEEP) hand = !pending && (!retain || keep_done);
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= WAIT;
      slot <= 0;
      pending <= 0;
      free <= 0;
      count <= 0;
      control <= 0;
      keep <= 0;
      sweep <= 0;
    end else begin
      free <= 0;
      count <= 0;
      control <= 0;
      keep <= 0;
      sweep <= 0;
      if (look) pending <= 0;
      if (passed) slot <= slot + 1'b1;
      if (hand) begin
        pending <= 1;
        rec <= made;
        state <= WAIT;
      end
      case (state)
        WAIT: begin
          wait_done <= 0;
          trailer <= 0;
          chained <= 0;
          quarter <= 0;
          if (sweep_due) begin
            if (idle && !pending && !control_busy) begin
              sweep <= 1;
              state <= SWEEP;
            end
          end else if (ready && !free && started && words > 1) state <= HEAD;
        end
        SWEEP: if (!sweep && !control_busy) state <= WAIT;
        HEAD: begin
          kind <= octet0[7:4];
          retain <= octet0[0];
          body <= two ? 11'd3 : 11'd2;
          topic_length <= {octet2, window[31:24]};
          proves <= 0;
          not_proof <= 0;
          reason <= why;
          if (fails) state <= DROP;
          else if (octet0[7:4] != mqtick_pkg::PUBLISH) state <= CONTROL;
          else state <= two ? LONG : SECTION;
        end
        LONG: begin
          topic_length <= {window[7:0], window[15:8]};
          state <= SECTION;
        end
        // Topic and subnet. Whoever answers a challenge is a subscriber.
        SECTION: begin
          payload <= body + 11'd2 + topic_length[10:0];
          if (topic_length == 6 && !not_proof) state <= PROOF_LOW;
          else if (!may_publish) begin
            reason <= mqtick_pkg::SUBNET;
            state <= DROP;
          end else if (17'(body) + 17'd2 + 17'(topic_length) > 17'(length)) begin
            reason <= mqtick_pkg::TRUNCATED;
            state <= DROP;
          end else if (topic_length == 0 || topic_length > 64) begin
            reason <= mqtick_pkg::TOPIC;
            state <= DROP;
          end else if (!pending) state <= RUN;
        end
        PROOF_LOW: begin
          proves <= window == "orp$";
          state <= PROOF_HIGH;
        end
        PROOF_HIGH: begin
          not_proof <= 1;
          state <= SECTION;
          if (proves && window[15:0] == "fo" && length >= 16'(body) + 16'd8) begin
            reason <= mqtick_pkg::SUBNET;
            state <= may_subscribe ? CONTROL : DROP;
          end
        end
        RUN: if (text_done) state <= JUDGE;
        JUDGE:
          if (text_bad || text_reserved) begin
            reason <= text_bad ? mqtick_pkg::TOPIC : mqtick_pkg::RESERVED;
            state <= DROP;
          end else if (complete && damaged) state <= DROP;
          else if (complete && !hand) begin
            if (candidate) state <= VERSION_READ;
            else if (retain) state <= KEEP;
          end
        VERSION_READ: begin
          trailer <= window[7:4] == 2;
          state <= window[7:4] == 2 ? TRAILER_READ : KEEP;
        end
        // Whoever wrote anything but zeros there has filled it.
        TRAILER_READ: begin
          quarter <= quarter + 1'b1;
          if (window != 0) chained <= 1;
          if (!quarter[1])
            residence <= {residence[31:0], window[7:0], window[15:8], window[23:16], window[31:24]};
          source <= window[31:26] == 0 ? window[25:24] : 2'd0;
          if (quarter == 3) state <= KEEP;
        end
        KEEP:
          if (retain && idle && !pending && !control_busy && !wait_done) begin
            keep <= 1;
            wait_done <= 1;
          end
        CONTROL:
          if (wait_done) begin
            if (control_done) begin
              free <= 1;
              state <= WAIT;
            end
          end else if (complete && damaged) state <= DROP;
          else if (complete && idle && !pending && !control_busy) begin
            control <= 1;
            wait_done <= 1;
          end
        default:  // DROP
          if (complete) begin
            count <= 1;
            count_what <= damaged ? mqtick_pkg::DAMAGED : reason;
            free <= 1;
            state <= WAIT;
          end
      endcase
    end
  end

endmodule
