// The retained messages: a pool of places, each for one datagram as it came.
//
// Keeping one looks for its topic in the whole pool, delivering tries a filter on every place, an
// octet a cycle and no further than the first that differs. Neither is on the way of a message
// that is not retained.
module mqtick_retained
#(
  parameter int SLOTS = 4,
  parameter int PLACES = 64,
  parameter int OCTETS = 1024,       // of payload
  parameter int PLACE_WORDS = 137,
  parameter int POOL_AW = 14,
  localparam int SB = $clog2(SLOTS),
  localparam int KW = $clog2(PLACES)
) (
  input  logic               clk,
  input  logic               rst,
  // keep the message in `slot`
  input  logic               keep,
  output logic               keep_done,
  input  logic [SB-1:0]      slot,
  input  logic [10:0]        length,
  input  logic [10:0]        topic_begins,
  input  logic [6:0]         topic_length,
  input  logic               trailer,
  // send what matches a filter in `slot`
  input  logic               deliver,
  output logic               deliver_done,
  input  logic [10:0]        filter_begins,
  input  logic [6:0]         filter_length,
  input  logic [31:0]        ip,
  input  logic [15:0]        port,
  // packet buffer, octets and words
  output logic               reads,
  output logic [10:0]        at,
  input  logic [7:0]         octet,
  output logic [SB+7:0]      words_at,  // what is read there goes into the pool
  // pool
  output logic [POOL_AW-1:0] pool_at,
  input  logic [63:0]        pool,
  output logic               pool_we,
  output logic [POOL_AW-1:0] pool_into,
  // copies
  output logic               send_valid,
  output mqtick_pkg::record_t send_record,
  output logic [72:0]        send_who,
  input  logic               send_pop,
  output logic               copy,
  output logic               count    // one that is not kept
);

  typedef enum logic [2:0] {IDLE, PLACE, COMPARE, FOUND, STORE, MATCH, SEND, SEND_END} state_t;
  state_t state;

  logic [PLACES-1:0] valid;
  logic [19:0] kept [PLACES];       // long header, trailer, length of topic and datagram
  logic [KW:0] place;
  logic [KW-1:0] free_place, here;
  logic delivers, has_free, begun;
  logic long, with_trailer, is_found;
  logic [6:0] its_topic;
  logic [10:0] its_length;
  logic [6:0] f, t, f_next, t_next;  // octets of filter (or the new topic) and topic
  logic past;                        // the topic has ended before the slash of the filter
  logic matched, failed, past_next;
  logic [7:0] word, stored;
  logic [10:0] octet_of_pool;
  logic [2:0] octet_was;
  logic [7:0] pool_octet;
  logic [POOL_AW-1:0] base;

  assign here = place[KW-1:0];
  assign {long, with_trailer, its_topic, its_length} = kept[here];
  assign base = POOL_AW'(32'(here) * PLACE_WORDS);
  assign octet_of_pool = 11'(t_next) + (long ? 11'd5 : 11'd4);
  assign pool_at = base + POOL_AW'(octet_of_pool[10:3]);
  assign pool_octet = pool[8*octet_was +: 8];
  assign at = (delivers ? filter_begins : topic_begins) + 11'(f_next);
  assign reads = state != IDLE && state != SEND && state != SEND_END;
  assign words_at = {slot, word};
  assign pool_we = state == STORE && begun;
  assign pool_into = base + POOL_AW'(stored);

  always_comb begin
    f_next = f;
    t_next = t;
    past_next = past;
    matched = 0;
    failed = 0;
    if (state == COMPARE) begin
      f_next = f + 1'b1;
      t_next = t + 1'b1;
      matched = t == its_topic;
      failed = !matched && octet != pool_octet;
    end else if (state == MATCH) begin
      if (f == filter_length) begin
        matched = t == its_topic && !past;
        failed = !matched;
      end else if (octet == "#") matched = 1;
      else if (past) failed = 1;
      else if (octet == "+") begin
        if (t == its_topic || pool_octet == "/") f_next = f + 1'b1;
        else t_next = t + 1'b1;
      end else if (t == its_topic) begin
        past_next = 1;
        f_next = f + 1'b1;
        failed = octet != "/";
      end else begin
        f_next = f + 1'b1;
        t_next = t + 1'b1;
        failed = octet != pool_octet;
      end
    end
  end

  assign send_valid = state == SEND || state == SEND_END;
  assign send_who = {state == SEND_END, ip, port, 24'd0};
  assign copy = state == SEND && send_pop;
  always_comb begin
    send_record = '0;
    send_record.kept = 1;
    send_record.place = 8'(here);
    send_record.length = its_length;
    send_record.trailer = with_trailer;
  end

  logic [10:0] payload;
  assign payload = length - topic_begins - 11'(topic_length);

  always_ff @(posedge clk) begin
    octet_was <= octet_of_pool[2:0];
    if (state == STORE && !begun)
      kept[here] <= {topic_begins[0], trailer, topic_length, length};
    if (rst) begin
      state <= IDLE;
      valid <= 0;
      keep_done <= 0;
      deliver_done <= 0;
      count <= 0;
    end else begin
      keep_done <= 0;
      deliver_done <= 0;
      count <= 0;
      case (state)
        IDLE: begin
          place <= 0;
          has_free <= 0;
          is_found <= 0;
          delivers <= deliver;
          begun <= 0;
          word <= 0;
          f <= 0;
          t <= 0;
          past <= 0;
          if (keep || deliver) state <= PLACE;
        end
        // The first octets are read meanwhile.
        PLACE: begin
          f <= 0;
          t <= 0;
          past <= 0;
          if (place == (KW+1)'(PLACES)) begin
            deliver_done <= delivers;
            state <= delivers ? IDLE : FOUND;
          end else if (!valid[here]) begin
            if (!has_free) free_place <= here;
            has_free <= 1;
            place <= place + 1'b1;
          end else if (delivers) state <= MATCH;
          else if (its_topic == topic_length) state <= COMPARE;
          else place <= place + 1'b1;
        end
        COMPARE: begin
          f <= f_next;
          t <= t_next;
          if (matched) begin
            is_found <= 1;
            state <= FOUND;
          end else if (failed) begin
            f <= 0;
            t <= 0;
            place <= place + 1'b1;
            state <= PLACE;
          end
        end
        FOUND: begin
          if (!is_found) place <= {1'b0, free_place};
          if (payload == 0) begin
            if (is_found) valid[here] <= 0;
            keep_done <= 1;
            state <= IDLE;
          end else if (32'(payload) > OCTETS || !(is_found || has_free)) begin
            count <= 1;
            keep_done <= 1;
            state <= IDLE;
          end else state <= STORE;
        end
        STORE: begin
          begun <= 1;
          word <= word + 1'b1;
          stored <= word;
          valid[here] <= 1;
          if (begun && stored == 8'((length - 11'd1) >> 3)) begin
            keep_done <= 1;
            state <= IDLE;
          end
        end
        MATCH: begin
          f <= f_next;
          t <= t_next;
          past <= past_next;
          if (matched) state <= SEND;
          else if (failed) begin
            f <= 0;
            t <= 0;
            place <= place + 1'b1;
            state <= PLACE;
          end
        end
        SEND: if (send_pop) state <= SEND_END;
        default:  // SEND_END
          if (send_pop) begin
            f <= 0;
            t <= 0;
            place <= place + 1'b1;
            state <= PLACE;
          end
      endcase
    end
  end

endmodule
