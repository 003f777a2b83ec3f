// The keyed hash of a topic or filter under each shape in use: the exclusive or of one word for
// each piece and each slash, so that a level under a wildcard contributes nothing.
module mqtick_hash
#(
  parameter int SHAPES = 8,
  parameter int BITS = 42
) (
  input  logic                        clk,
  input  logic                        rst,
  input  logic [119:0]                key,
  input  mqtick_pkg::piece_t piece,
  input  logic                        piece_valid,
  input  logic [SHAPES-1:0][15:0]     plus,
  input  logic [SHAPES-1:0][4:0]      depth,
  output logic [SHAPES-1:0][BITS-1:0] hash,
  output logic                        ready  // of the last topic that was begun
);

  logic [47:0] a, b, slashes, slash_now;
  mqtick_pkg::piece_t pa;
  logic b_first, b_last, b_slash;
  logic va, vb;
  logic [SHAPES-1:0] level_in, slash_in;

  function automatic logic [47:0] rounds(input logic [47:0] x, input logic [119:0] keys);
    rounds = x;
    for (int i = 0; i < 5; i++) rounds = mqtick_pkg::mix(rounds, keys[24*i +: 24]);
  endfunction

  assign slash_now = b_first ? key[47:0] : slashes;

  logic [47:0] letters_word;
  assign letters_word = rounds(b, {key[71:0], key[119:72]});

  always_ff @(posedge clk) begin
    a <= {piece.letters, piece.index, piece.level, 8'h5a};
    pa <= piece;
    b <= rounds(a, key);
    b_first <= pa.first;
    b_last <= pa.last;
    b_slash <= pa.slash;
    for (int s = 0; s < SHAPES; s++) begin
      level_in[s] <= 5'(pa.level) < depth[s] && !plus[s][pa.level] && pa.count != 0;
      slash_in[s] <= pa.slash && 5'(pa.level) + 5'd1 < depth[s];
    end
    if (rst) begin
      va <= 0;
      vb <= 0;
      ready <= 0;
    end else begin
      va <= piece_valid;
      vb <= va;
      if (vb) ready <= b_last;
      else if (piece_valid || va) ready <= 0;
    end
    if (vb) begin
      slashes <= b_slash ? mqtick_pkg::mix(slash_now, key[119:96]) : slash_now;
      for (int s = 0; s < SHAPES; s++)
        hash[s] <= (b_first ? '0 : hash[s])
          ^ (level_in[s] ? letters_word[BITS-1:0] : '0)
          ^ (slash_in[s] ? slash_now[BITS-1:0] : '0);
    end
  end

  logic unused;
  assign unused = &{1'b0, letters_word, pa};

endmodule
