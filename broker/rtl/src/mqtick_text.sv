// Reads a topic or a filter out of the packet buffer, piece by piece, and judges it.
//
// A piece is up to four octets and ends with its level, so that a level is cut in the same way
// wherever it stands. One piece a cycle.
module mqtick_text (
  input  logic        clk,
  input  logic        rst,
  input  logic        start,
  input  logic [10:0] start_at,
  input  logic [6:0]  start_length,  // 1 to 64
  input  logic        filter,        // steady while busy
  output logic        busy,
  output logic        done,          // with the last piece
  output logic [10:0] at,
  input  logic        at_ok,         // the octets there have arrived
  input  logic [31:0] window,
  // residence prefix, as pieces with their slashes
  output logic [2:0]  prefix_at,
  input  logic [31:0] prefix,
  input  logic [3:0]  prefix_pieces,
  output mqtick_pkg::piece_t piece,
  output logic        piece_valid,
  // known one cycle after done
  output logic        bad,
  output logic        reserved,      // begins with $
  output logic        below,         // the prefix is it or above it
  output logic [15:0] plus,
  output logic [4:0]  depth          // level of the #, or 16
);

  localparam logic [1:0] MATCHING = 0, BORDER = 1, MATCHED = 2, OTHER = 3;

  logic [6:0] left;
  logic here;  // the window shows the octets at `position`
  logic [10:0] position;
  logic [3:0] index;
  logic [4:0] level;
  logic first;
  logic [3:0] k;
  logic [1:0] match;

  logic [2:0] limit, letters, used;
  logic slash, last;
  logic [31:0] text;
  logic nul, any_plus, any_hash;

  always_comb begin
    limit = left > 4 ? 3'd4 : left[2:0];
    letters = limit;
    slash = 0;
    for (int i = 3; i >= 0; i--)
      if (3'(i) < limit && window[8*i +: 8] == "/") begin
        letters = 3'(i);
        slash = 1;
      end
    used = letters + 3'(slash);
    last = 7'(used) == left;
    text = 0;
    nul = 0;
    any_plus = 0;
    any_hash = 0;
    for (int i = 0; i < 4; i++)
      if (3'(i) < letters) begin
        text[8*i +: 8] = window[8*i +: 8];
        if (window[8*i +: 8] == 0) nul = 1;
        if (window[8*i +: 8] == "+") any_plus = 1;
        if (window[8*i +: 8] == "#") any_hash = 1;
      end
  end

  assign at = !busy ? start_at : here ? position + 11'(used) : position;
  assign done = busy && here && last;
  assign piece_valid = busy && here;
  assign piece = {first, last, slash, letters, level[3:0], index, text};
  assign prefix_at = k[2:0];

  logic [31:0] with_slash;
  logic prefix_last;
  always_comb begin
    with_slash = text;
    if (slash) with_slash[8*letters[1:0] +: 8] = "/";
    prefix_last = k + 4'd1 == prefix_pieces;
  end

  assign below = match == MATCHED;

  always_ff @(posedge clk) begin
    if (rst) begin
      busy <= 0;
      here <= 0;
    end else if (!busy) begin
      if (start) begin
        busy <= 1;
        here <= at_ok;
        position <= start_at;
        left <= start_length;
        first <= 1;
        index <= 0;
        level <= 0;
        bad <= 0;
        reserved <= 0;
        plus <= 0;
        depth <= 16;
        k <= 0;
        match <= prefix_pieces == 0 ? OTHER : MATCHING;
      end
    end else begin
      position <= at;
      here <= at_ok;
      if (here) begin
        left <= left - 7'(used);
        first <= 0;
        if (first && window[7:0] == "$") reserved <= 1;
        if (slash) begin
          index <= 0;
          level <= level + 1'b1;
          if (level == 15) bad <= 1;
        end else index <= index + 1'b1;
        if (nul) bad <= 1;
        if (any_plus) begin
          if (filter && index == 0 && letters == 1) plus[level[3:0]] <= 1;
          else bad <= 1;
        end
        if (any_hash) begin
          if (filter && index == 0 && letters == 1 && !slash && last) depth <= level;
          else bad <= 1;
        end
        k <= k + 1'b1;
        case (match)
          MATCHING:
            if (prefix_last) begin
              if (text != prefix) match <= OTHER;
              else if (slash || last) match <= MATCHED;
              else match <= BORDER;
            end else if (with_slash != prefix) match <= OTHER;
          BORDER: match <= letters == 0 && slash ? MATCHED : OTHER;
          default: ;
        endcase
        if (last) begin
          busy <= 0;
          here <= 0;
        end
      end
    end
  end

endmodule
