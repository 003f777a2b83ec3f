// SipHash-2-4 (Aumasson and Bernstein, 2012) of eight octets, half a round a cycle.
//
// `other` gives a function that is independent of the standard one: the last block counts nine
// octets, which no message of eight has.
module mqtick_siphash (
  input  logic         clk,
  input  logic         rst,
  input  logic         start,
  input  logic         other,
  input  logic [127:0] key,      // first octet in 7:0
  input  logic [63:0]  message,  // first octet in 7:0; steady until done
  output logic         done,
  output logic [63:0]  hash
);

  logic [63:0] v0, v1, v2, v3, a, b;
  logic [63:0] last;
  logic running, is_other;
  logic [3:0] step;  // half rounds: 4 for the message, 4 for its length, 8 at the end

  function automatic logic [63:0] left(input logic [63:0] x, input int by);
    left = x << by | x >> (64 - by);
  endfunction

  assign last = {is_other ? 8'd9 : 8'd8, 56'd0};
  assign a = v0 + (step[0] ? v3 : v1);
  assign b = v2 + (step[0] ? v1 : v3);
  assign hash = v0 ^ v1 ^ v2 ^ v3;

  always_ff @(posedge clk) begin
    if (rst) begin
      running <= 0;
      done <= 0;
    end else begin
      done <= 0;
      if (start) begin
        running <= 1;
        is_other <= other;
        step <= 0;
        v0 <= key[63:0] ^ 64'h736f6d6570736575;
        v1 <= key[127:64] ^ 64'h646f72616e646f6d;
        v2 <= key[63:0] ^ 64'h6c7967656e657261;
        v3 <= key[127:64] ^ 64'h7465646279746573 ^ message;
      end else if (running) begin
        step <= step + 1'b1;
        if (!step[0]) begin
          v0 <= left(a, 32);
          v1 <= left(v1, 13) ^ a;
          v2 <= b;
          v3 <= left(v3, 16) ^ b;
        end else begin
          v0 <= a ^ (step == 3 ? message : step == 7 ? last : 64'd0);
          v1 <= left(v1, 17) ^ b;
          v2 <= left(b, 32) ^ (step == 7 ? 64'hff : 64'd0);
          v3 <= left(v3, 21) ^ a ^ (step == 3 ? last : 64'd0);
          if (step == 15) begin
            running <= 0;
            done <= 1;
          end
        end
      end
    end
  end

endmodule
