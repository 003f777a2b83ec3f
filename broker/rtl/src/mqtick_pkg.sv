// Numbers that several modules share. Sections are those of broker/spec/mqtt-udp.md.
package mqtick_pkg;

  localparam logic [31:0] VERSION = 32'h0001_0000;

  // Counters, in the order of their registers. The first 15 are the refusals of section 7.
  localparam logic [4:0] SOURCE = 0, OVERSIZED = 1, LENGTH = 2, TYPE = 3, FLAGS = 4, QOS = 5,
    SUBNET = 6, TRUNCATED = 7, FILTERS = 8, IDENTIFIER = 9, TOPIC = 10, RESERVED = 11, PROOF = 12,
    STRANGER = 13, FULL = 14,
    FILTER = 15, SHARE = 16, SHAPE = 17, TABLE = 18,
    CHALLENGES = 19, POOL = 20, LEASES_ENDED = 21, DAMAGED = 22;

  // Packet types (MQTT 3.1.1, 2.2.1) that a client sends here.
  localparam logic [3:0] CONNECT = 1, PUBLISH = 3, SUBSCRIBE = 8, UNSUBSCRIBE = 10, PINGREQ = 12,
    DISCONNECT = 14;

  // A piece of a topic or filter: up to four octets of one level, with the slash that ends it.
  typedef struct packed {
    logic        first;
    logic        last;
    logic        slash;
    logic [2:0]  count;    // letters, without the slash
    logic [3:0]  level;
    logic [3:0]  index;    // of the piece within its level
    logic [31:0] letters;  // first one in 7:0, zero beyond count
  } piece_t;

  // What the transmitter has to know of a datagram.
  typedef struct packed {
    logic        kept;      // its octets stand in the pool, not in the packet buffer
    logic [7:0]  place;     // slot of the packet buffer or place of the pool
    logic [10:0] length;
    logic        as_is;     // first octet unchanged; else RETAIN is set as `kept` says
    logic        trailer;
    logic        chained;   // another broker filled the trailer
    logic        unstated;  // it said no residence, or one to which none can be added
    logic [1:0]  source;
    logic [63:0] arrival;   // less the residence that stood there
  } record_t;

  // One round of the keyed permutation that the hashes are made of.
  function automatic logic [47:0] mix(input logic [47:0] x, input logic [23:0] key);
    logic [23:0] l, r;
    {l, r} = x;
    mix = {r ^ ({l[22:0], l[23]} & {l[15:0], l[23:16]}) ^ {l[21:0], l[23:22]} ^ key, l};
  endfunction

endpackage
