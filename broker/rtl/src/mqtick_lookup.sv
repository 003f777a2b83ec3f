// The topic table: which topics (filters, as they were subscribed) match what was published.
//
// A topic stands in one of two buckets of four, found by its hash under its shape; its number is
// its place there. A bucket holds tags. The second bucket follows from the first and the tag, so
// that topics with one tag share both buckets or none: no tag stands twice in the buckets of any
// key, and one whole key is compared for each look-up whose tag matches. Keys are the pieces that a
// shape leaves; those of more than seven pieces have the rest in a pool.
//
// A published topic is looked up once for each shape, one a cycle. Commands (find, store, drop)
// come from the control and only when nothing is being looked up.
module mqtick_lookup
#(
  parameter int TOPICS = 65536,
  parameter int SHAPES = 8,
  parameter int KEY_POOL = 4096,
  parameter int TAG = 16,
  localparam int TW = $clog2(TOPICS),
  localparam int BW = TW - 3,
  localparam int SW = $clog2(SHAPES),
  localparam int PW = $clog2(KEY_POOL),
  localparam int HW = BW + TAG
) (
  input  logic                      clk,
  input  logic                      rst,
  input  logic                      clear,
  input  logic [15:0]               clear_at,
  input  logic [5:0]                shape_limit,
  // pieces of what is being read, and their hash
  input  mqtick_pkg::piece_t piece,
  input  logic                      piece_valid,
  input  logic [15:0]               plus,
  input  logic [4:0]                depth,
  output logic [SHAPES-1:0][15:0]   shape_plus,
  output logic [SHAPES-1:0][4:0]    shape_depth,
  input  logic [SHAPES-1:0][HW-1:0] hash,
  // a published topic has been read
  input  logic                      look,
  output logic                      look_ready,
  // topics that match, and the end of each list
  output logic                      match,
  output logic                      match_end,
  output logic [TW-1:0]             match_topic,
  input  logic                      match_ready,
  // commands
  input  logic                      find_shape,   // answered one cycle later
  output logic                      shape_found,
  output logic                      shape_room,
  input  logic                      find,
  input  logic                      store,
  input  logic                      drop,
  input  logic [TW-1:0]             drop_topic,
  output logic                      done,
  output logic                      found,
  output logic                      room,
  output logic [TW-1:0]             place,        // found or to be stored at
  output logic [31:0]               topics        // in the table
);

  localparam int EW = 1 + SW + TAG;  // valid, shape, tag
  localparam int KEY_WORDS = 8;

  typedef enum logic [3:0] {
    IDLE, SCAN, FIND, FOUND, FIND_KEY, STORED, STORE_KEY, DROP, DROPPED, DROPPED_POOL
  } state_t;
  state_t state;

  // ---- shapes ----------------------------------------------------------------------------------

  logic [TW:0] uses [SHAPES];  // topics of each shape that is in use
  logic [SW-1:0] shape;        // the one a command is about
  logic [SHAPES-1:0] used, same;
  logic [SW:0] top;            // shapes to look up
  always_comb begin
    top = 0;
    for (int s = 0; s < SHAPES; s++) begin
      same[s] = used[s] && shape_plus[s] == plus && shape_depth[s] == depth;
      if (used[s]) top = (SW+1)'(s) + 1'b1;
    end
  end

  // ---- tags ------------------------------------------------------------------------------------

  logic [SHAPES-1:0][HW-1:0] hashes;
  logic [SW:0] next;       // shape being asked for
  logic scanned;           // the tags of `asked` are there
  logic end_due;           // the end of the list comes behind its last topic
  logic [SW-1:0] asked;
  logic [TAG-1:0] tag;
  logic [BW-1:0] bucket0, bucket1;
  logic [BW-1:0] was0, was1;
  logic [HW-1:0] key_hash;
  logic [SW-1:0] key_shape;
  logic scan_room;
  logic [7:0] tags_we;
  logic [7:0][EW-1:0] tags;  // of the first bucket, then of the second
  logic [BW-1:0] tags_into;
  logic [EW-1:0] entry;      // what a command writes; zeros after reset
  logic [TW-1:0] number;     // where

  assign key_shape = state == SCAN ? next[SW-1:0] : shape;
  assign key_hash = hashes[key_shape];
  assign bucket0 = key_hash[BW-1:0] ^ (BW'(key_shape) << (BW - SW));
  assign bucket1 = bucket0 ^ BW'(key_hash[HW-1:BW]);
  assign tags_into = clear ? clear_at[BW-1:0] : number[TW-2:2];
  always_comb
    for (int w = 0; w < 8; w++)
      tags_we[w] = clear
        || ((state == STORED || state == DROPPED) && {number[TW-1], number[1:0]} == 3'(w));

  mqtick_ram #(.WIDTH(4 * EW), .DEPTH(TOPICS / 8), .PARTS(4), .BLOCK(1)) u_tags0 (
    .clk, .we(tags_we[3:0]), .waddr(tags_into), .wdata({4{entry}}), .re(1'b1),
    .raddr(state == DROP ? number[TW-2:2] : bucket0), .rdata(tags[3:0]));
  mqtick_ram #(.WIDTH(4 * EW), .DEPTH(TOPICS / 8), .PARTS(4), .BLOCK(1)) u_tags1 (
    .clk, .we(tags_we[7:4]), .waddr(tags_into), .wdata({4{entry}}), .re(1'b1),
    .raddr(state == DROP ? number[TW-2:2] : bucket1), .rdata(tags[7:4]));

  logic [7:0] hits;
  logic hit;
  logic [TW-1:0] hit_number, free_number;
  logic free;
  always_comb begin
    logic [2:0] full0, full1;
    logic [1:0] way0, way1;
    full0 = 0;
    full1 = 0;
    way0 = 0;
    way1 = 0;
    for (int w = 3; w >= 0; w--) begin
      hits[w] = tags[w] == {1'b1, asked, tag};
      hits[w+4] = tags[w+4] == {1'b1, asked, tag};
      if (tags[w][EW-1]) full0 += 3'd1;
      else way0 = 2'(w);
      if (tags[w+4][EW-1]) full1 += 3'd1;
      else way1 = 2'(w);
    end
    hit = hits != 0;  // never two of them
    hit_number = {|hits[7:4], |hits[7:4] ? was1 : was0,
                  |(hits & 8'hcc), |(hits & 8'haa)};
    // The emptier bucket takes a new topic.
    free_number = full1 < full0 ? {1'b1, was1, way1} : {1'b0, was0, way0};
    free = !(full0[2] && full1[2]);
  end

  // ---- candidates, on their way to the comparison of keys ---------------------------------------

  logic [1:0] text_into, text_of;  // which of four texts is written, is looked up
  logic candidate, candidate_end;
  logic [TW-1:0] candidate_topic;
  logic [SW-1:0] candidate_shape;
  logic [1:0] candidate_text;
  logic queue_valid, queue_pop;
  logic [4:0] queue_count;
  logic [1:0] outstanding;  // published topics not yet at their end

  mqtick_fifo #(.WIDTH(1 + TW + SW + 2), .DEPTH(16)) u_queue (
    .clk, .rst,
    .push((scanned && hit) || end_due),
    .in({!scanned, hit_number, asked, text_of}),
    .pop(queue_pop),
    .out({candidate_end, candidate_topic, candidate_shape, candidate_text}),
    .valid(queue_valid), .count(queue_count));

  assign candidate = queue_valid && !candidate_end;
  assign scan_room = queue_count < 14;
  assign look_ready = state == IDLE && outstanding != 3 && !find && !store && !drop;

  // ---- comparison of keys ----------------------------------------------------------------------

  typedef enum logic [2:0] {REST, RUN, REACHED, GIVE, GIVE_END} compare_t;
  compare_t compare;
  logic [4:0] text_written, text_at, key_at, key_next;
  logic writes, commanded;      // the run is a command's; it writes the key
  logic equal;
  logic [TW-1:0] topic;
  logic [SW-1:0] rule;
  logic [1:0] text;
  logic last, slash;
  logic [2:0] count;
  logic [3:0] level;
  logic [31:0] letters;
  logic [31:0] key_low, key_high, key_word, kept;
  logic keep_letters, keep_slash, begin_run, long;
  logic [PW-1:0] pool_next;
  logic run_command;

  assign run_command = (state == FOUND && !done) || state == STORED;
  assign begin_run = compare == REST && (run_command || candidate);

  mqtick_ram #(.WIDTH(41), .DEPTH(128), .BLOCK(1)) u_text (
    .clk, .we(piece_valid), .waddr({text_into, piece.first ? 5'd0 : text_written}),
    .wdata({piece.last, piece.slash, piece.count, piece.level, piece.letters}), .re(1'b1),
    .raddr(begin_run ? {run_command ? text_into : candidate_text, 5'd0} : {text, text_at + 5'd1}),
    .rdata({last, slash, count, level, letters}));

  assign keep_letters = 5'(level) < shape_depth[rule] && !shape_plus[rule][level];
  assign keep_slash = slash && 5'(level) + 5'd1 < shape_depth[rule];

  always_comb begin
    // Behind the letters are zeros.
    for (int i = 0; i < 4; i++)
      kept[8*i +: 8] = (keep_letters ? letters[8*i +: 8] : 8'd0)
        | (keep_slash && (keep_letters ? count[1:0] : 2'd0) == 2'(i) ? "/" : 8'd0);
    key_word = key_at < 5'(KEY_WORDS) ? key_low : key_high;
    key_next = key_at + 5'(kept != 0);
  end

  logic key_we;
  logic [TW-1:0] key_topic;
  logic [4:0] key_from;
  assign key_we = writes && ((compare == RUN && kept != 0) || compare == REACHED);
  assign key_topic = begin_run ? (run_command ? (state == STORED ? number : hit_number)
                                              : candidate_topic) : topic;
  assign key_from = begin_run ? 5'd0 : key_next;

  mqtick_ram #(.WIDTH(32), .DEPTH(TOPICS * KEY_WORDS)) u_keys (
    .clk, .we(key_we && key_at < 5'(KEY_WORDS)), .waddr({topic, key_at[2:0]}),
    .wdata(compare == RUN ? kept : 32'd0), .re(1'b1), .raddr({key_topic, key_from[2:0]}),
    .rdata(key_low));

  logic long_now;
  logic [PW-1:0] pool_read;
  mqtick_ram #(.WIDTH(32), .DEPTH(KEY_POOL * 32)) u_pool (
    .clk, .we(key_we && key_at >= 5'(KEY_WORDS)), .waddr({pool_next, key_at}),
    .wdata(compare == RUN ? kept : 32'd0), .re(1'b1), .raddr({pool_read, key_from}),
    .rdata(key_high));
  // Where the rest of a long key is.
  logic long_we;
  mqtick_ram #(.WIDTH(1 + PW), .DEPTH(TOPICS)) u_long (
    .clk, .we(long_we), .waddr(number), .wdata({long, pool_next}), .re(begin_run || state == DROP),
    .raddr(state == DROP ? number : key_topic), .rdata({long_now, pool_read}));
  assign long_we = state == STORED;

  // Free places of the pool: those given back, then those never used.
  logic [PW:0] pool_fresh, pool_back;
  logic [PW-1:0] pool_top;
  logic pool_give, pool_take, pool_room;
  assign pool_give = state == DROPPED_POOL && long_now;
  assign pool_take = state == STORE_KEY && compare == REST && long;
  mqtick_ram #(.WIDTH(PW), .DEPTH(KEY_POOL)) u_pool_free (
    .clk, .we(pool_give), .waddr(pool_back[PW-1:0]), .wdata(pool_read), .re(1'b1),
    .raddr(pool_back[PW-1:0] - 1'b1), .rdata(pool_top));
  assign pool_room = pool_back != 0 || pool_fresh != (PW+1)'(KEY_POOL);
  assign pool_next = pool_back != 0 ? pool_top : pool_fresh[PW-1:0];

  assign queue_pop = (begin_run && !run_command) || (compare == GIVE_END && match_ready);
  assign match = (compare == GIVE || compare == GIVE_END) && match_ready;
  assign match_end = compare == GIVE_END;
  assign match_topic = topic;

  always_ff @(posedge clk) begin
    if (piece_valid) text_written <= piece.first ? 5'd1 : text_written + 5'd1;
    if (rst) begin
      compare <= REST;
      commanded <= 0;
      writes <= 0;
      outstanding <= 0;
    end else begin
      outstanding <= outstanding + 2'(look && look_ready) - 2'(match && match_end);
      case (compare)
        REST: begin
          text_at <= 0;
          key_at <= 0;
          equal <= 1;
          commanded <= run_command;
          writes <= state == STORED;
          if (begin_run) begin
            compare <= RUN;
            topic <= key_topic;
            rule <= run_command ? shape : candidate_shape;
            text <= run_command ? text_into : candidate_text;
          end else if (queue_valid) compare <= GIVE_END;
        end
        RUN: begin
          text_at <= text_at + 1'b1;
          key_at <= key_next;
          if (kept != 0 && kept != key_word) begin
            equal <= 0;
            if (!commanded) compare <= REST;
          end
          if (last && (commanded || kept == 0 || kept == key_word)) compare <= REACHED;
        end
        REACHED: begin
          if (key_word != 0) equal <= 0;
          compare <= !commanded && key_word == 0 ? GIVE : REST;
        end
        default: if (match_ready) compare <= REST;
      endcase
    end
  end

  // ---- commands and the scan -------------------------------------------------------------------

  logic tag_hit;
  always_ff @(posedge clk) begin
    was0 <= bucket0;
    was1 <= bucket1;
    asked <= key_shape;
    tag <= key_hash[HW-1:BW];
    if (rst) begin
      state <= IDLE;
      scanned <= 0;
      end_due <= 0;
      done <= 0;
      // The shape without wildcards is always the first, and so are its copies: time servers rely
      // on it.
      used <= SHAPES'(1);
      shape_plus[0] <= 0;
      shape_depth[0] <= 16;
      entry <= '0;
      topics <= 0;
      text_into <= 0;
      pool_fresh <= 0;
      pool_back <= 0;
      shape <= 0;
    end else begin
      scanned <= 0;
      end_due <= 0;
      done <= 0;
      if (find_shape) begin
        // An unused place takes a new shape at once; it counts from its first topic on.
        shape_found <= same != 0;
        shape_room <= 0;
        for (int s = SHAPES - 1; s >= 0; s--)
          if (same == 0 && !used[s] && 6'(s) < shape_limit) begin
            shape <= SW'(s);
            shape_room <= 1;
          end
        for (int s = 0; s < SHAPES; s++) if (same[s]) shape <= SW'(s);
      end
      if (pool_give) pool_back <= pool_back + 1'b1;
      if (pool_take) begin
        if (pool_back != 0) pool_back <= pool_back - 1'b1;
        else pool_fresh <= pool_fresh + 1'b1;
      end
      case (state)
        IDLE: begin
          next <= 0;
          hashes <= hash;
          if (look && look_ready) begin
            text_of <= text_into;
            text_into <= text_into + 1'b1;
            state <= SCAN;
          end else if (find) state <= FIND;
          else if (store) begin
            number <= place;
            entry <= {1'b1, shape, tag_stored};
            state <= STORED;
          end else if (drop) begin
            number <= drop_topic;
            entry <= '0;
            state <= DROP;
          end
        end
        SCAN:
          if (scan_room) begin
            if (next != top) begin
              next <= next + 1'b1;
              scanned <= 1;
            end else begin
              end_due <= 1;
              state <= IDLE;
            end
          end
        FIND: state <= FOUND;
        FOUND: begin
          tag_hit <= hit;
          place <= hit ? hit_number : free_number;
          tag_stored <= tag;
          room <= free && !hit;
          state <= FIND_KEY;
        end
        FIND_KEY:
          if (compare == REST) begin
            found <= tag_hit && equal;
            // The end of the key takes a word as well.
            long <= key_count >= 5'(KEY_WORDS);
            room <= room && (key_count < 5'(KEY_WORDS) || pool_room);
            done <= 1;
            state <= IDLE;
          end
        STORED: begin
          used[shape] <= 1;
          topics <= topics + 1'b1;
          state <= STORE_KEY;
        end
        STORE_KEY:
          if (compare == REST) begin
            done <= 1;
            state <= IDLE;
          end
        DROP: state <= DROPPED;
        DROPPED: begin
          used[dropped_shape] <= dropped_shape == 0 || uses_after != 0;
          topics <= topics - 1'b1;
          state <= DROPPED_POOL;
        end
        default: begin
          done <= 1;
          state <= IDLE;
        end
      endcase
      if (find_shape && same == 0)
        for (int s = SHAPES - 1; s >= 0; s--)
          if (first_unused[s]) begin
            shape_plus[s] <= plus;
            shape_depth[s] <= depth;
          end
    end
  end

  logic [TAG-1:0] tag_stored;
  logic [SW-1:0] dropped_shape, counted_shape;
  logic [TW:0] uses_before, uses_after;
  logic [SHAPES-1:0] first_unused;
  logic [4:0] key_count;
  logic [EW-1:0] dropped;
  assign dropped = tags[{number[TW-1], number[1:0]}];
  assign dropped_shape = dropped[TAG +: SW];
  assign counted_shape = state == STORED ? shape : dropped_shape;
  assign uses_before = used[counted_shape] ? uses[counted_shape] : '0;
  assign uses_after = state == STORED ? uses_before + 1'b1 : uses_before - 1'b1;
  always_ff @(posedge clk)
    if (state == STORED || state == DROPPED) uses[counted_shape] <= uses_after;
  assign first_unused = ~used & (used + 1'b1);
  assign key_count = key_at;

  logic unused;
  assign unused = &{1'b0, clear_at, piece, count, dropped};

endmodule
