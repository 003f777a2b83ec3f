// The tables of subscriptions and subscribers. The control reads and writes them while nothing is
// being sent; the generator reads them otherwise.
//
// The subscriptions of a topic are a list in both directions, so that one is removed in constant
// time and the order of subscription is kept; those of a client are a list in one. The first
// table has what each copy needs, so that it alone has to be fast.
module mqtick_tables #(
  parameter int TW = 16,
  parameter int SW = 16,
  parameter int CW = 14
) (
  input  logic          clk,
  input  logic          clear,
  input  logic [15:0]   clear_at,
  input  logic          control,        // reads by the control
  input  logic          sweep_re,       // one client, when nobody else reads
  input  logic [CW-1:0] sweep_at,
  // generator
  input  logic [TW-1:0] g_topic_at,
  input  logic          g_entry_re,
  input  logic [SW-1:0] g_entry_at,
  input  logic          g_client_re,
  input  logic [CW-1:0] g_client_at,
  input  logic          g_copies_we,
  input  logic [CW-1:0] g_copies_at,
  input  logic [23:0]   g_copies,
  // control
  input  logic [TW-1:0] c_topic_at,
  input  logic [SW-1:0] c_entry_at,
  input  logic [CW-1:0] c_client_at,
  input  logic          topic_we,
  input  logic [2*SW-1:0] topic_in,
  input  logic          entry_we,
  input  logic [CW+SW-1:0] entry_in,
  input  logic          link_we,
  input  logic [TW+2*SW-1:0] link_in,
  input  logic          client_we,
  input  logic [80:0]   client_in,
  input  logic          lease_we,
  input  logic [SW+33:0] lease_in,
  input  logic          copies_clear,
  input  logic [CW-1:0] share_at,
  input  logic          share_we,
  input  logic [CW:0]   share_in,
  // what is read
  output logic [SW-1:0] topic_first,
  output logic [SW-1:0] topic_last,
  output logic [CW-1:0] entry_client,
  output logic [SW-1:0] entry_next,
  output logic [TW-1:0] link_topic,
  output logic [SW-1:0] link_previous,  // of the topic
  output logic [SW-1:0] link_next,      // of the client
  output logic          client_valid,
  output logic [31:0]   client_ip,
  output logic [15:0]   client_port,
  output logic [31:0]   client_expiry,
  output logic [23:0]   client_copies,
  output logic [27:0]   lease_ticks,
  output logic [5:0]    lease_held,     // subscriptions
  output logic [SW-1:0] lease_first,
  output logic [CW:0]   share_held      // leases under one hash of the address
);

  mqtick_ram #(.WIDTH(2 * SW), .DEPTH(1 << TW)) u_topics (
    .clk, .we(topic_we), .waddr(c_topic_at), .wdata(topic_in), .re(1'b1),
    .raddr(control ? c_topic_at : g_topic_at), .rdata({topic_first, topic_last}));

  mqtick_ram #(.WIDTH(CW + SW), .DEPTH(1 << SW)) u_entries (
    .clk, .we(entry_we), .waddr(c_entry_at), .wdata(entry_in), .re(control || g_entry_re),
    .raddr(control ? c_entry_at : g_entry_at), .rdata({entry_client, entry_next}));

  mqtick_ram #(.WIDTH(TW + 2 * SW), .DEPTH(1 << SW)) u_links (
    .clk, .we(link_we), .waddr(c_entry_at), .wdata(link_in), .re(1'b1),
    .raddr(c_entry_at), .rdata({link_topic, link_previous, link_next}));

  mqtick_ram #(.WIDTH(81), .DEPTH(1 << CW)) u_clients (
    .clk, .we(client_we || clear), .waddr(clear ? clear_at[CW-1:0] : c_client_at),
    .wdata(clear ? 81'd0 : client_in), .re(control || g_client_re || sweep_re),
    .raddr(control ? c_client_at : sweep_re ? sweep_at : g_client_at),
    .rdata({client_valid, client_ip, client_port, client_expiry}));

  mqtick_ram #(.WIDTH(34 + SW), .DEPTH(1 << CW)) u_leases (
    .clk, .we(lease_we), .waddr(c_client_at), .wdata(lease_in), .re(1'b1),
    .raddr(c_client_at), .rdata({lease_ticks, lease_held, lease_first}));

  mqtick_ram #(.WIDTH(24), .DEPTH(1 << CW)) u_copies (
    .clk, .we(copies_clear || g_copies_we), .waddr(copies_clear ? c_client_at : g_copies_at),
    .wdata(copies_clear ? 24'd0 : g_copies), .re(g_client_re),
    .raddr(g_client_at), .rdata(client_copies));

  mqtick_ram #(.WIDTH(CW + 1), .DEPTH(1 << CW)) u_shares (
    .clk, .we(share_we || clear), .waddr(clear ? clear_at[CW-1:0] : share_at),
    .wdata(clear ? '0 : share_in), .re(1'b1), .raddr(share_at), .rdata(share_held));

  logic unused;
  assign unused = &{1'b0, clear_at};

endmodule
