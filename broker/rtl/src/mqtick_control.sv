// Serves everything but the copies of a PUBLISH: proofs, leases, subscriptions, answers.
//
// It works while nothing is being looked up or sent, on one packet at a time, and takes as many
// cycles as it needs; the messages kept (mqtick_retained) and the hash of topics are helpers.
module mqtick_control
#(
  parameter int TW = 16,
  parameter int SW = 16,
  parameter int CW = 14,
  parameter int SUBSCRIPTIONS = 65536,
  parameter int ANSWER_PLACE = 64
) (
  input  logic               clk,
  input  logic               rst,
  input  logic               cleared,
  input  logic [127:0]       seed,
  input  logic               seed_valid,
  output logic               ready,        // keys are there
  output logic [119:0]       hash_key,
  // one packet
  input  logic               start,
  input  logic [3:0]         kind,
  input  logic [10:0]        length,
  input  logic [10:0]        body,         // where it begins: 2 or 3
  input  logic [31:0]        ip,
  input  logic [15:0]        port,
  output logic               busy,
  output logic               done,
  input  logic               sweep,        // look at the lease of one client
  input  logic [CW-1:0]      sweep_at,
  output logic               count,
  output logic [4:0]         count_what,
  // settings and time
  input  logic [11:0]        lease_s,
  input  logic [5:0]         share_entries,
  input  logic [15:0]        share_clients,
  input  logic [31:0]        tick,
  input  logic [15:0]        epoch,
  // octets of the packet
  output logic [10:0]        at,
  input  logic [31:0]        window,
  // filters
  output logic               text_start,
  output logic [10:0]        text_at,
  output logic [6:0]         text_length,
  input  logic               text_done,
  input  logic               text_bad,
  input  logic               hash_ready,
  output logic               find_shape,
  input  logic               shape_found,
  input  logic               shape_room,
  output logic               find,
  output logic               store,
  output logic               drop,
  output logic [TW-1:0]      drop_topic,
  input  logic               lookup_done,
  input  logic               found,
  input  logic               room,
  input  logic [TW-1:0]      place,
  // tables
  output logic [TW-1:0]      topic_at,
  output logic [SW-1:0]      entry_at,
  output logic [CW-1:0]      client_at,
  output logic               topic_we,
  output logic [2*SW-1:0]    topic_in,
  output logic               entry_we,
  output logic [CW+SW-1:0]   entry_in,
  output logic               link_we,
  output logic [TW+2*SW-1:0] link_in,
  output logic               client_we,
  output logic [80:0]        client_in,
  output logic               lease_we,
  output logic [SW+33:0]     lease_in,
  output logic               copies_clear,
  output logic [CW-1:0]      share_at,
  output logic               share_we,
  output logic [CW:0]        share_in,
  input  logic [SW-1:0]      topic_first,
  input  logic [SW-1:0]      topic_last,
  input  logic [CW-1:0]      entry_client,
  input  logic [SW-1:0]      entry_next,
  input  logic [TW-1:0]      link_topic,
  input  logic [SW-1:0]      link_previous,
  input  logic [SW-1:0]      link_next,
  input  logic               client_valid,
  input  logic [31:0]        client_ip,
  input  logic [15:0]        client_port,
  input  logic [31:0]        client_expiry,
  input  logic [27:0]        lease_ticks,
  input  logic [5:0]         lease_held,
  input  logic [SW-1:0]      lease_first,
  input  logic [CW:0]        share_held,   // leases under one hash of the address
  // kept messages that match the filter at text_at
  output logic               deliver,
  input  logic               deliver_done,
  // answers
  output logic               answer_we,
  output logic [2:0]         answer_at,
  output logic [63:0]        answer_data,
  output logic               send_valid,
  output mqtick_pkg::record_t send_record,
  output logic [72:0]        send_who,
  input  logic               send_pop,
  // fill
  output logic [31:0]        clients,
  output logic [31:0]        entries
);

  localparam logic [4:0] NOTHING = 31;

  typedef enum logic [6:0] {
    BOOT, BOOT_KEY, BOOT_KEYS, IDLE, PAUSE, FINISH,
    NAME, NAME_TEXT, CONNECT_LEVEL, CONNECT_IDENTIFIER,
    IDENTIFIER_READ, WALK, WALK_FIELD, WALKED,
    TOKEN, TOKEN_HIGH, TOKEN_NOW, TOKEN_BEFORE,
    SEEK, SEEK_HASHED, SEEK_READ, SEEK_NEXT, SOUGHT,
    PROVEN, PROVEN_HASHED, PROVEN_COUNTED, LEASE, LEASE_TICKS, LEASE_SET,
    CHALLENGE, CHALLENGE_HASHED, ANSWER, SEND, SEND_END,
    RENEW, EACH, EACH_LENGTH, EACH_QOS, EACH_TEXT, EACH_JUDGED, EACH_SHAPE, EACH_HASH,
    EACH_FIND, EACH_FOUND, SEARCH, SEARCH_READ, MISSING, ADD, ADD_ENTRY, ADD_STORED, ADD_TAIL,
    ADD_LINK, ADD_BEFORE, ADDED, TAKEN, TAKE_LINK, REFUSE, EACH_END,
    KEPT, KEPT_LENGTH, KEPT_SENT,
    REMOVE, REMOVE_READ, REMOVE_TOPIC, REMOVE_DROPPED, REMOVE_BEFORE, REMOVE_LINK, REMOVE_AFTER,
    REMOVE_FREE,
    FORGET, FORGET_READ, FORGET_HASHED, FORGET_EACH, FORGOTTEN, SWEEP_READ
  } state_t;
  state_t state, then, removed, forgot;

  logic [3:0] packet;
  logic proves;               // a PUBLISH is here because it answers a challenge
  logic [10:0] p;             // octet of the packet
  logic [15:0] word;          // two octets at p, big endian
  logic [15:0] identifier;
  logic [9:0] filters;        // found; 490 fit into a datagram
  logic [5:0] filter;
  logic [31:0] refused;
  logic [10:0] field;         // length of a string
  logic [1:0] qos_octets;
  logic [7:0] code;           // of CONNACK
  logic [17:0] half_s;
  logic [36:0] product;
  logic [4:0] bits;
  logic [63:0] token;

  assign word = {window[7:0], window[15:8]};
  assign qos_octets = packet == mqtick_pkg::SUBSCRIBE ? 2'd1 : 2'd0;
  assign proves = packet == mqtick_pkg::PUBLISH;

  // ---- hash of addresses, and tokens ------------------------------------------------------------

  logic sip_start, sip_other, sip_done;
  logic [63:0] sip_message, sip_hash;
  logic [31:0] sip_ip;
  logic [15:0] sip_port, sip_number;
  assign sip_message = {sip_number[7:0], sip_number[15:8], sip_port[7:0], sip_port[15:8],
                        sip_ip[7:0], sip_ip[15:8], sip_ip[23:16], sip_ip[31:24]};
  mqtick_siphash u_siphash (
    .clk, .rst, .start(sip_start), .other(sip_other), .key(seed), .message(sip_message),
    .done(sip_done), .hash(sip_hash));

  // ---- clients ----------------------------------------------------------------------------------

  logic [2*(CW-3)-1:0] client_hash;
  logic [2:0] way;
  logic have;                 // a lease
  logic [CW-1:0] client;
  logic [CW-1:0] free_client [2];
  logic [2:0] free_ways [2];
  logic is_alive, is_it;
  logic expired;              // the lease that is being forgotten had ended
  logic [27:0] lease;
  logic [5:0] held;
  logic [SW-1:0] first_held;
  assign is_alive = client_valid && !(tick - client_expiry < 32'h8000_0000);
  assign is_it = client_valid && client_ip == ip && client_port == port;

  // ---- subscriptions ----------------------------------------------------------------------------

  logic [SW:0] fresh;         // entries never used begin here
  logic [SW-1:0] free_first;
  logic [SW:0] free_count;
  logic [SW-1:0] entry, prior, after, e_before, e_next;
  logic [5:0] left;
  logic held_before;
  logic [TW-1:0] topic;
  assign entries = 32'(fresh) - 32'(free_count);

  // ---- answers ----------------------------------------------------------------------------------

  typedef enum logic [2:0] {CONNACK, CHALLENGING, SUBACK, UNSUBACK, PINGRESP} answer_t;
  answer_t answer;
  logic [2:0] answer_word;
  logic [10:0] answer_length;
  assign answer_we = state == ANSWER;
  assign answer_at = answer_word;
  always_comb begin
    answer_data = 0;
    case (answer)
      CONNACK: answer_data[31:0] = {code, 24'h000220};
      CHALLENGING:
        case (answer_word)
          0: answer_data = {"orp$", 32'h06001030};
          1: answer_data = {sip_hash[47:0], "fo"};
          default: answer_data[15:0] = sip_hash[63:48];
        endcase
      SUBACK: begin
        for (int i = 0; i < 8; i++)
          if (6'(i) + {answer_word, 3'd0} >= 4)
            answer_data[8*i + 7] = refused[5'(i) + 5'({answer_word, 3'd0}) - 5'd4];
        if (answer_word == 0)
          answer_data[31:0] = {identifier[7:0], identifier[15:8], 8'(filters) + 8'd2, 8'h90};
      end
      UNSUBACK: answer_data[31:0] = {identifier[7:0], identifier[15:8], 16'h02b0};
      default: answer_data[15:0] = 16'h00d0;
    endcase
  end
  assign send_valid = state == SEND || state == SEND_END;
  assign send_who = {state == SEND_END, ip, port, 24'd0};
  always_comb begin
    send_record = '0;
    send_record.kept = 1;
    send_record.place = 8'(ANSWER_PLACE);
    send_record.length = answer_length;
    send_record.as_is = 1;
  end

  assign busy = state != IDLE;
  assign text_at = p + 11'd2;
  assign text_length = field[6:0];

  task automatic go_answer(input answer_t what, input logic [10:0] octets);
    answer <= what;
    answer_length <= octets;
    answer_word <= 0;
    state <= ANSWER;
  endtask

  task automatic refuse(input logic [4:0] what);
    count <= what != NOTHING;
    count_what <= what;
    state <= FINISH;
  endtask

  // The octets at `from`, or what the tables have there, are needed in the next state.
  task automatic pause(input state_t next);
    then <= next;
    state <= PAUSE;
  endtask

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= BOOT;
      ready <= 0;
      done <= 0;
      count <= 0;
      sip_start <= 0;
      text_start <= 0;
      find_shape <= 0;
      find <= 0;
      store <= 0;
      drop <= 0;
      deliver <= 0;
      topic_we <= 0;
      entry_we <= 0;
      link_we <= 0;
      client_we <= 0;
      lease_we <= 0;
      copies_clear <= 0;
      share_we <= 0;
      fresh <= 0;
      free_count <= 0;
      clients <= 0;
    end else begin
      done <= 0;
      count <= 0;
      sip_start <= 0;
      text_start <= 0;
      find_shape <= 0;
      find <= 0;
      store <= 0;
      drop <= 0;
      deliver <= 0;
      topic_we <= 0;
      entry_we <= 0;
      link_we <= 0;
      client_we <= 0;
      lease_we <= 0;
      copies_clear <= 0;
      share_we <= 0;
      case (state)
        // The secrets of the topic hash are drawn from the seed, as tokens that nobody can have:
        // no datagram comes from 0.0.0.0.
        BOOT:
          if (seed_valid && cleared) begin
            sip_ip <= 0;
            sip_port <= 0;
            sip_number <= 0;
            sip_other <= 0;
            sip_start <= 1;
            state <= BOOT_KEY;
          end
        BOOT_KEY:
          if (sip_done) begin
            hash_key[63:0] <= sip_hash;
            sip_number <= 1;
            sip_start <= 1;
            state <= BOOT_KEYS;
          end
        BOOT_KEYS:
          if (sip_done) begin
            hash_key[119:64] <= sip_hash[55:0];
            ready <= 1;
            state <= IDLE;
          end
        IDLE: begin
          p <= body;
          at <= body;
          packet <= kind;
          filters <= 0;
          filter <= 0;
          refused <= 0;
          code <= 0;
          have <= 0;
          sip_ip <= ip;
          sip_port <= port;
          half_s <= {5'd0, lease_s, 1'b0};
          client_at <= sweep_at;
          if (start)
            case (kind)
              mqtick_pkg::PUBLISH: pause(TOKEN);
              mqtick_pkg::CONNECT: pause(NAME);
              mqtick_pkg::SUBSCRIBE, mqtick_pkg::UNSUBSCRIBE: pause(IDENTIFIER_READ);
              default: if (length != body) refuse(mqtick_pkg::TRUNCATED); else state <= SEEK;
            endcase
          else if (sweep) pause(SWEEP_READ);
        end
        PAUSE: state <= then;
        FINISH: begin
          done <= 1;
          state <= IDLE;
        end

        // ---- CONNECT: it is read as far as it is understood -----------------------------------
        NAME: begin
          field <= word[10:0];
          if (12'(p) + 12'd2 > 12'(length) || 17'(p) + 17'd2 + 17'(word) > 17'(length))
            refuse(mqtick_pkg::TRUNCATED);
          else begin
            at <= p + 11'd2;
            pause(NAME_TEXT);
          end
        end
        NAME_TEXT: begin
          p <= p + 11'd2 + field;
          if (field != 4 || window != "TTQM") begin
            code <= 1;
            state <= SEEK;
          end else begin
            at <= p + 11'd2 + field;
            pause(CONNECT_LEVEL);
          end
        end
        CONNECT_LEVEL: begin
          p <= p + 11'd4;
          at <= p + 11'd4;
          half_s <= 18'({window[23:16], window[31:24]})
            + {1'b0, window[23:16], window[31:24], 1'b0};
          if (p + 11'd1 > length) refuse(mqtick_pkg::TRUNCATED);
          else if (window[7:0] != 4) begin
            code <= 1;
            state <= SEEK;
          end else if (p + 11'd2 > length) refuse(mqtick_pkg::TRUNCATED);
          else if ((window[15:8] & 8'hfd) != 0) begin
            code <= 5;
            state <= SEEK;
          end else if (p + 11'd6 > length) refuse(mqtick_pkg::TRUNCATED);
          else pause(CONNECT_IDENTIFIER);
        end
        CONNECT_IDENTIFIER: begin
          if (half_s == 0) half_s <= {5'd0, lease_s, 1'b0};
          if (17'(p) + 17'd2 + 17'(word) != 17'(length)) refuse(mqtick_pkg::TRUNCATED);
          else state <= SEEK;
        end

        // ---- SUBSCRIBE and UNSUBSCRIBE: the whole packet is judged before any filter -----------
        IDENTIFIER_READ: begin
          identifier <= word;
          p <= p + 11'd2;
          at <= p + 11'd2;
          if (p + 11'd2 > length) refuse(mqtick_pkg::TRUNCATED);
          else pause(WALK_FIELD);
        end
        WALK: if (p == length) state <= WALKED; else pause(WALK_FIELD);
        WALK_FIELD:
          if (17'(p) + 17'd2 + 17'(word) + 17'(qos_octets) > 17'(length))
            refuse(mqtick_pkg::TRUNCATED);
          else begin
            filters <= filters + 1'b1;
            p <= p + 11'd2 + word[10:0] + 11'(qos_octets);
            at <= p + 11'd2 + word[10:0] + 11'(qos_octets);
            state <= WALK;
          end
        WALKED: begin
          p <= body + 11'd2;
          if (filters > 32) refuse(mqtick_pkg::FILTERS);
          else if (identifier == 0) refuse(mqtick_pkg::IDENTIFIER);
          else state <= SEEK;
        end

        // ---- an answer to a challenge -----------------------------------------------------------
        TOKEN: begin
          at <= p + 11'd8;
          if (length != p + 11'd16) refuse(mqtick_pkg::PROOF); else pause(TOKEN_HIGH);
        end
        TOKEN_HIGH: begin
          token[31:0] <= window;
          at <= p + 11'd12;
          sip_other <= 0;
          sip_number <= epoch;
          sip_start <= 1;
          pause(TOKEN_NOW);
        end
        TOKEN_NOW: begin
          token[63:32] <= window;
          if (sip_done) begin
            sip_number <= epoch - 1'b1;
            if (sip_hash == token) state <= SEEK;
            else begin
              sip_start <= 1;
              state <= TOKEN_BEFORE;
            end
          end
        end
        TOKEN_BEFORE:
          if (sip_done) begin
            if (sip_hash == token) state <= SEEK; else refuse(mqtick_pkg::PROOF);
          end

        // ---- who is it? -------------------------------------------------------------------------
        SEEK: begin
          sip_other <= 1;
          sip_number <= 0;
          sip_start <= 1;
          way <= 0;
          free_ways[0] <= 0;
          free_ways[1] <= 0;
          state <= SEEK_HASHED;
        end
        SEEK_HASHED: if (sip_done) begin
          client_hash <= sip_hash[2*(CW-3)-1:0];
          state <= SEEK_READ;
        end
        SEEK_READ: begin
          client_at <= {way[2], way[2] ? client_hash[2*(CW-3)-1:CW-3] : client_hash[CW-4:0],
                        way[1:0]};
          pause(SEEK_NEXT);
        end
        SEEK_NEXT: begin
          way <= way + 1'b1;
          if (is_it) begin
            client <= client_at;
            expired <= 1;
            if (is_alive) begin
              have <= 1;
              state <= SOUGHT;
            end else begin
              way <= way;  // it is free then
              forgot <= SEEK_READ;
              state <= FORGET;
            end
          end else begin
            if (!client_valid) begin
              free_client[way[2]] <= client_at;
              free_ways[way[2]] <= free_ways[way[2]] + 1'b1;
            end
            state <= way == 7 ? SOUGHT : SEEK_READ;
          end
        end
        SOUGHT: begin
          lease <= lease_ticks;
          held <= lease_held;
          first_held <= lease_first;
          expired <= 0;
          if (proves) begin
            if (have) state <= FINISH; else state <= PROVEN;
          end else if (!have) begin
            if (packet == mqtick_pkg::SUBSCRIBE || packet == mqtick_pkg::CONNECT)
              state <= CHALLENGE;
            else refuse(mqtick_pkg::STRANGER);
          end else
            case (packet)
              mqtick_pkg::CONNECT: if (code != 0) go_answer(CONNACK, 11'd4); else state <= LEASE;
              mqtick_pkg::DISCONNECT: begin
                forgot <= FINISH;
                state <= FORGET;
              end
              mqtick_pkg::UNSUBSCRIBE: state <= EACH;
              default: state <= RENEW;
            endcase
        end

        // ---- a lease begins ---------------------------------------------------------------------
        // Its address is hashed with what no subscriber has: port 0.
        PROVEN: begin
          sip_port <= 0;
          sip_start <= 1;
          state <= PROVEN_HASHED;
        end
        PROVEN_HASHED: if (sip_done) begin
          share_at <= sip_hash[CW-1:0];
          pause(PROVEN_COUNTED);
        end
        PROVEN_COUNTED: begin
          client <= free_ways[1] > free_ways[0] ? free_client[1] : free_client[0];
          lease <= 0;
          held <= 0;
          first_held <= 0;
          share_in <= share_held + 1'b1;
          if ((free_ways[0] == 0 && free_ways[1] == 0)
              || 17'(share_held) >= 17'(share_clients)) begin
            code <= 3;
            count <= 1;
            count_what <= mqtick_pkg::FULL;
            go_answer(CONNACK, 11'd4);
          end else begin
            clients <= clients + 1'b1;
            share_we <= 1;
            state <= LEASE;
          end
        end
        // Half seconds times 488281.25 / 1024, rounded up: ticks of 2^20 ns.
        LEASE: begin
          product <= 0;
          bits <= 18;
          state <= LEASE_TICKS;
        end
        LEASE_TICKS: begin
          product <= {product[35:0], 1'b0} + (LEASE_FACTOR[bits] ? 37'(half_s) : 37'd0);
          bits <= bits - 1'b1;
          if (bits == 0) state <= LEASE_SET;
        end
        LEASE_SET: begin
          client_at <= client;
          lease <= product[36:10] + 28'd2;
          client_in <= {1'b1, ip, port, tick + 32'(product[36:10]) + 32'd2};
          lease_in <= {28'(product[36:10]) + 28'd2, held, first_held};
          client_we <= 1;
          lease_we <= 1;
          copies_clear <= proves;
          if (proves) state <= FINISH; else go_answer(CONNACK, 11'd4);
        end
        RENEW: begin
          client_at <= client;
          client_in <= {1'b1, ip, port, tick + 32'(lease)};
          client_we <= 1;
          if (packet == mqtick_pkg::SUBSCRIBE) state <= EACH; else go_answer(PINGRESP, 11'd2);
        end

        // ---- answers ----------------------------------------------------------------------------
        CHALLENGE: begin
          sip_other <= 0;
          sip_number <= epoch;
          sip_start <= 1;
          state <= CHALLENGE_HASHED;
        end
        CHALLENGE_HASHED:
          if (sip_done) begin
            count <= 1;
            count_what <= mqtick_pkg::CHALLENGES;
            go_answer(CHALLENGING, 11'd18);
          end
        ANSWER: begin
          answer_word <= answer_word + 1'b1;
          if (answer_word == 4) state <= SEND;
        end
        SEND: if (send_pop) state <= SEND_END;
        SEND_END:
          if (send_pop) begin
            p <= body + 11'd2;
            at <= body + 11'd2;
            filter <= 0;
            if (answer == SUBACK) state <= KEPT; else state <= FINISH;
          end

        // ---- each filter ------------------------------------------------------------------------
        EACH: begin
          at <= p;
          if (10'(filter) == filters) begin
            if (packet == mqtick_pkg::SUBSCRIBE) go_answer(SUBACK, 11'(filters) + 11'd4);
            else go_answer(UNSUBACK, 11'd4);
          end else pause(EACH_LENGTH);
        end
        EACH_LENGTH: begin
          field <= word[10:0];
          at <= p + 11'd2 + word[10:0];
          pause(EACH_QOS);
        end
        EACH_QOS:
          if (field == 0 || field > 64
              || (packet == mqtick_pkg::SUBSCRIBE && window[7:0] > 2)) begin
            count_what <= mqtick_pkg::FILTER;
            state <= REFUSE;
          end else begin
            text_start <= 1;
            state <= EACH_TEXT;
          end
        EACH_TEXT: if (text_done) state <= EACH_JUDGED;
        EACH_JUDGED: begin
          count_what <= mqtick_pkg::FILTER;
          if (text_bad) state <= REFUSE;
          else begin
            find_shape <= 1;
            pause(EACH_SHAPE);
          end
        end
        EACH_SHAPE: begin
          // Share goes before shape.
          count_what <= held >= share_entries ? mqtick_pkg::SHARE : mqtick_pkg::SHAPE;
          if (shape_found || (shape_room && packet == mqtick_pkg::SUBSCRIBE
                              && held < share_entries)) begin
            text_start <= 1;
            state <= EACH_HASH;
          end else state <= REFUSE;
        end
        EACH_HASH: if (text_done) pause(EACH_FIND);
        EACH_FIND:
          if (hash_ready) begin
            find <= 1;
            state <= EACH_FOUND;
          end
        EACH_FOUND:
          if (lookup_done) begin
            topic <= place;
            entry <= first_held;
            left <= held;
            held_before <= 0;
            state <= found ? SEARCH : MISSING;
          end
        // Has this client a subscription of the topic?
        SEARCH: begin
          entry_at <= entry;
          if (left == 0) state <= MISSING; else pause(SEARCH_READ);
        end
        SEARCH_READ:
          if (link_topic == topic) begin
            if (packet == mqtick_pkg::SUBSCRIBE) state <= EACH_END;
            else begin
              removed <= TAKEN;
              state <= REMOVE;
            end
          end else begin
            prior <= entry;
            held_before <= 1;
            entry <= link_next;
            left <= left - 1'b1;
            state <= SEARCH;
          end
        MISSING: begin
          count_what <= held >= share_entries ? mqtick_pkg::SHARE : mqtick_pkg::TABLE;
          if (packet != mqtick_pkg::SUBSCRIBE) state <= EACH_END;
          else if (held >= share_entries || !(found || room)
                   || (free_count == 0 && fresh == (SW+1)'(SUBSCRIPTIONS))) state <= REFUSE;
          else state <= ADD;
        end
        ADD: begin
          entry <= free_count != 0 ? free_first : fresh[SW-1:0];
          entry_at <= free_first;
          topic_at <= topic;
          store <= !found;
          pause(ADD_ENTRY);
        end
        ADD_ENTRY: begin
          if (free_count != 0) begin
            free_count <= free_count - 1'b1;
            free_first <= entry_next;
          end else fresh <= fresh + 1'b1;
          after <= topic_last;
          prior <= topic_first;
          if (found) state <= ADD_LINK; else state <= ADD_STORED;
        end
        ADD_STORED:
          if (lookup_done) begin
            prior <= entry;
            state <= ADD_LINK;
          end
        ADD_LINK: begin
          entry_at <= entry;
          entry_in <= {client, entry};
          entry_we <= 1;
          link_in <= {topic, after, first_held};
          link_we <= 1;
          topic_in <= {prior, entry};
          topic_we <= 1;
          state <= found ? ADD_TAIL : ADDED;
        end
        ADD_TAIL: begin
          entry_at <= after;
          pause(ADD_BEFORE);
        end
        ADD_BEFORE: begin
          entry_in <= {entry_client, entry};
          entry_we <= 1;
          state <= ADDED;
        end
        ADDED: begin
          client_at <= client;
          held <= held + 1'b1;
          first_held <= entry;
          lease_in <= {lease, held + 6'd1, entry};
          lease_we <= 1;
          state <= EACH_END;
        end
        // UNSUBSCRIBE: the entry leaves the client's list.
        TAKEN: begin
          client_at <= client;
          held <= held - 1'b1;
          if (!held_before) first_held <= e_next;
          lease_in <= {lease, held - 6'd1, held_before ? first_held : e_next};
          lease_we <= 1;
          entry_at <= prior;
          if (held_before) pause(TAKE_LINK); else state <= EACH_END;
        end
        TAKE_LINK: begin
          link_in <= {link_topic, link_previous, e_next};
          link_we <= 1;
          state <= EACH_END;
        end
        REFUSE: begin
          count <= packet == mqtick_pkg::SUBSCRIBE;
          refused[filter[4:0]] <= 1;
          state <= EACH_END;
        end
        EACH_END: begin
          p <= p + 11'd2 + field + 11'(qos_octets);
          filter <= filter + 1'b1;
          state <= EACH;
        end

        // ---- the kept messages of granted filters -----------------------------------------------
        KEPT: begin
          at <= p;
          if (10'(filter) == filters) state <= FINISH; else pause(KEPT_LENGTH);
        end
        KEPT_LENGTH: begin
          field <= word[10:0];
          deliver <= !refused[filter[4:0]];
          state <= KEPT_SENT;
        end
        KEPT_SENT:
          if (refused[filter[4:0]] || deliver_done) begin
            p <= p + 11'd2 + field + 11'd1;
            filter <= filter + 1'b1;
            state <= KEPT;
          end

        // ---- an entry leaves its topic's list ---------------------------------------------------
        REMOVE: begin
          entry_at <= entry;
          pause(REMOVE_READ);
        end
        REMOVE_READ: begin
          after <= entry_next;
          e_before <= link_previous;
          e_next <= link_next;
          topic <= link_topic;
          topic_at <= link_topic;
          pause(REMOVE_TOPIC);
        end
        REMOVE_TOPIC: begin
          topic_in <= {topic_first == entry ? after : topic_first,
                       topic_last == entry ? e_before : topic_last};
          entry_at <= e_before;
          if (topic_first == entry && topic_last == entry) begin
            drop <= 1;
            state <= REMOVE_DROPPED;
          end else begin
            topic_we <= 1;
            if (topic_first == entry) state <= REMOVE_FREE; else pause(REMOVE_BEFORE);
          end
        end
        REMOVE_DROPPED: if (lookup_done) state <= REMOVE_FREE;
        REMOVE_BEFORE: begin
          // The entry before the last one is the last one then, and points at itself.
          entry_in <= {entry_client, after == entry ? e_before : after};
          entry_we <= 1;
          if (after == entry) state <= REMOVE_FREE;
          else state <= REMOVE_LINK;
        end
        REMOVE_LINK: begin
          entry_at <= after;
          pause(REMOVE_AFTER);
        end
        REMOVE_AFTER: begin
          link_in <= {link_topic, e_before, link_next};
          link_we <= 1;
          state <= REMOVE_FREE;
        end
        REMOVE_FREE: begin
          entry_at <= entry;
          entry_in <= {client, free_first};
          entry_we <= 1;
          free_first <= entry;
          free_count <= free_count + 1'b1;
          state <= removed;
        end

        // ---- a client with all its entries ------------------------------------------------------
        FORGET: begin
          client_at <= client;
          pause(FORGET_READ);
        end
        FORGET_READ: begin
          entry <= lease_first;
          left <= lease_held;
          sip_ip <= client_ip;
          sip_port <= 0;
          sip_number <= 0;
          sip_other <= 1;
          sip_start <= 1;
          state <= FORGET_HASHED;
        end
        FORGET_HASHED: if (sip_done) begin
          share_at <= sip_hash[CW-1:0];
          removed <= FORGET_EACH;
          if (left == 0) pause(FORGOTTEN); else state <= REMOVE;
        end
        FORGET_EACH: begin
          entry <= e_next;
          left <= left - 1'b1;
          state <= left == 1 ? FORGOTTEN : REMOVE;
        end
        FORGOTTEN: begin
          client_at <= client;
          client_in <= 0;
          client_we <= 1;
          clients <= clients - 1'b1;
          share_in <= share_held - 1'b1;
          share_we <= 1;
          sip_ip <= ip;
          sip_port <= port;
          count <= expired;
          count_what <= mqtick_pkg::LEASES_ENDED;
          state <= forgot;
        end
        SWEEP_READ: begin
          client <= client_at;
          expired <= 1;
          forgot <= IDLE;
          state <= client_valid && !is_alive ? FORGET : IDLE;
        end
        default: state <= IDLE;
      endcase
    end
  end

  localparam logic [18:0] LEASE_FACTOR = 19'd488282;
  assign drop_topic = topic;

endmodule
