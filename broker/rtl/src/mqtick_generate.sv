// Follows the list of each topic that matches and says whom to send a copy: one a cycle.
//
// The next entry's address is what was just read, so the list costs a cycle an entry. Those whose
// lease has ended get nothing.
module mqtick_generate #(
  parameter int TW = 16,
  parameter int SW = 16,
  parameter int CW = 14,
  localparam int WHO = 1 + 32 + 16 + 24
) (
  input  logic             clk,
  input  logic             rst,
  // a datagram that is on its way: whether its copies are counted
  input  logic             begin_datagram,
  input  logic             begin_counted,
  // topics that match, in order
  input  logic             match,
  input  logic             match_end,
  input  logic [TW-1:0]    match_topic,
  output logic             match_ready,
  // tables
  output logic [TW-1:0]    topic_at,
  input  logic [SW-1:0]    topic_first,
  output logic             entry_re,
  output logic [SW-1:0]    entry_at,
  input  logic [SW-1:0]    entry_next,    // itself: the last one
  input  logic [CW-1:0]    entry_client,
  output logic             client_re,
  output logic [CW-1:0]    client_at,
  input  logic             client_valid,
  input  logic [31:0]      client_ip,
  input  logic [15:0]      client_port,
  input  logic [31:0]      client_expiry,
  input  logic [23:0]      client_copies,
  output logic             copies_we,
  output logic [CW-1:0]    copies_at,
  output logic [23:0]      copies,
  input  logic [31:0]      tick,
  // to the transmitter
  output logic             who_valid,
  output logic [WHO-1:0]   who,           // end, address, port, copies so far
  input  logic             who_pop,
  output logic             sent           // counts
);

  logic queue_valid, queue_end, queue_pop;
  logic [TW-1:0] queue_topic;
  logic [3:0] queue_count;
  mqtick_fifo #(.WIDTH(1 + TW), .DEPTH(8)) u_topics (
    .clk, .rst, .push(match), .in({match_end, match_topic}), .pop(queue_pop),
    .out({queue_end, queue_topic}), .valid(queue_valid), .count(queue_count));
  assign match_ready = queue_count < 7;

  logic counted, unused_valid;
  logic [3:0] unused_count;
  mqtick_fifo #(.WIDTH(1), .DEPTH(8)) u_counted (
    .clk, .rst, .push(begin_datagram), .in(begin_counted), .pop(push_end), .out(counted),
    .valid(unused_valid), .count(unused_count));

  typedef enum logic [1:0] {REST, HEAD, CHASE} state_t;
  state_t state;
  logic [SW-1:0] entry;
  logic [CW-1:0] client;
  logic reading;  // the client is being read
  logic alive, room, last;
  logic [3:0] who_count;
  logic push_end;

  assign topic_at = queue_topic;
  assign last = entry_next == entry;
  assign room = who_count < 6;
  assign entry_re = state == HEAD || (state == CHASE && room);
  assign entry_at = state == HEAD ? topic_first : entry_next;
  assign client_re = state == CHASE && room;
  assign client_at = entry_client;
  assign alive = client_valid && !(tick - client_expiry < 32'h8000_0000);
  assign push_end = state == REST && queue_valid && queue_end && !reading && room;
  assign queue_pop = push_end || (state == HEAD);
  assign copies_we = reading && alive && counted;
  assign copies_at = client;
  assign copies = client_copies == 24'hffffff ? 24'd1 : client_copies + 24'd1;
  assign sent = reading && alive;

  mqtick_fifo #(.WIDTH(WHO), .DEPTH(8)) u_who (
    .clk, .rst, .push(push_end || (reading && alive)),
    .in(push_end ? {1'b1, {(WHO-1){1'b0}}} : {1'b0, client_ip, client_port, client_copies}),
    .pop(who_pop), .out(who), .valid(who_valid), .count(who_count));

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= REST;
      reading <= 0;
    end else begin
      reading <= client_re;
      case (state)
        REST: if (queue_valid && !queue_end) state <= HEAD;
        HEAD: state <= CHASE;
        default: if (room && last) state <= REST;
      endcase
    end
    if (entry_re) entry <= entry_at;
    if (client_re) client <= entry_client;
  end

endmodule
