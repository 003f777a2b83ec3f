// The broker: datagrams in, copies and answers out. The boundary is described in ../README.md.
//
// A PUBLISH passes three stages, each of which may work on another one: parser (and hash), look-up,
// generator (and transmitter). All other packets wait until the stages are empty, so that the
// result is that of one datagram after another.
module mqtick_broker
#(
  parameter int TOPICS = 65536,
  parameter int SUBSCRIPTIONS = 65536,
  parameter int CLIENTS = 16384,
  parameter int SHAPES = 8,
  parameter int KEY_POOL = 4096,         // keys that need more than seven pieces
  parameter int SLOTS = 8,               // datagrams in the packet buffer
  parameter int RETAINED = 64,
  parameter int RETAINED_OCTETS = 1024,  // of payload
  parameter int TAG = 16,                // bits of a topic's hash in the table: tests take few
  parameter bit LOOPBACK_DOOR = 0        // 127.0.0.0/8 may send
) (
  input  logic         clk,
  input  logic         rst,
  input  logic         rx_hdr_valid,
  output logic         rx_hdr_ready,
  input  logic [31:0]  rx_src_ip,
  input  logic [15:0]  rx_src_port,
  input  logic [15:0]  rx_length,
  input  logic [63:0]  rx_stamp,
  input  logic [63:0]  rx_tdata,
  input  logic [7:0]   rx_tkeep,
  input  logic         rx_tvalid,
  output logic         rx_tready,
  input  logic         rx_tlast,
  input  logic         rx_tuser,
  output logic         tx_hdr_valid,
  input  logic         tx_hdr_ready,
  output logic [31:0]  tx_dst_ip,
  output logic [15:0]  tx_dst_port,
  output logic [15:0]  tx_length,
  output logic         tx_fill,
  output logic [63:0]  tx_arrival,
  output logic [63:0]  tx_tdata,
  output logic [7:0]   tx_tkeep,
  output logic         tx_tvalid,
  input  logic         tx_tready,
  output logic         tx_tlast,
  input  logic [11:0]  s_axil_awaddr,
  input  logic         s_axil_awvalid,
  output logic         s_axil_awready,
  input  logic [31:0]  s_axil_wdata,
  input  logic [3:0]   s_axil_wstrb,
  input  logic         s_axil_wvalid,
  output logic         s_axil_wready,
  output logic [1:0]   s_axil_bresp,
  output logic         s_axil_bvalid,
  input  logic         s_axil_bready,
  input  logic [11:0]  s_axil_araddr,
  input  logic         s_axil_arvalid,
  output logic         s_axil_arready,
  output logic [31:0]  s_axil_rdata,
  output logic [1:0]   s_axil_rresp,
  output logic         s_axil_rvalid,
  input  logic         s_axil_rready,
  input  logic [63:0]  now,
  input  logic [63:0]  tod_ns,
  input  logic         tod_valid,
  input  logic         pps,
  input  logic [127:0] seed,
  input  logic         seed_valid
);

  localparam int TW = $clog2(TOPICS);
  localparam int SW = $clog2(SUBSCRIPTIONS);
  localparam int CW = $clog2(CLIENTS);
  localparam int SB = $clog2(SLOTS);
  localparam int HW = TW - 3 + TAG;
  localparam int CLEARED = TOPICS / 8 > CLIENTS ? TOPICS / 8 : CLIENTS;
  localparam int SIZES = SHAPES << 24 | CW << 16 | SW << 8 | TW;
  // A kept message: 1 or 2 octets of length, 64 of topic, and its place ends with a word.
  localparam int PLACE_WORDS = (RETAINED_OCTETS + 64 + 5 + 7) / 8;
  localparam int POOL_WORDS = RETAINED * PLACE_WORDS + 8;
  localparam int POOL_AW = $clog2(POOL_WORDS);
  localparam int ANSWER_PLACE = RETAINED;

  // ---- after reset the tables are cleared, then the secrets are drawn ---------------------------

  logic clear, ready;
  logic [16:0] clear_count;
  logic [15:0] clear_at;
  assign clear = clear_count != 17'(CLEARED);
  assign clear_at = clear_count[15:0];
  always_ff @(posedge clk)
    if (rst) clear_count <= 0;
    else if (clear) clear_count <= clear_count + 1'b1;

  logic [31:0] tick;
  logic [15:0] epoch;
  mqtick_time u_time (.clk, .rst, .now, .tick, .epoch);

  // ---- settings and counters --------------------------------------------------------------------

  logic [11:0] lease_s;
  logic [5:0] shape_limit, share_entries;
  logic [15:0] share_clients;
  logic [3:0] prefix_pieces;
  logic [2:0] prefix_at;
  logic [31:0] prefix, topics, entries, clients;
  logic [1:0] subnet_at;
  logic [63:0] publishers, subscribers;
  logic p_count, c_count, k_count, copy, k_copy;
  logic [4:0] p_what, c_what, k_what;
  mqtick_registers #(.SHAPES(SHAPES), .SIZES(SIZES)) u_registers (
    .clk, .rst, .clear, .clear_at, .ready,
    .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid,
    .s_axil_wready, .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid,
    .s_axil_arready, .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
    .lease_s, .shape_limit, .share_entries, .share_clients, .prefix_pieces, .prefix_at, .prefix,
    .subnet_at, .publishers, .subscribers, .topics, .entries, .clients, .tick, .epoch,
    .count(p_count || c_count || k_count),
    .count_what(p_count ? p_what : c_count ? c_what : k_what), .copy(copy || k_copy),
    .now, .tod_ns, .tod_valid, .pps);

  // ---- receive ----------------------------------------------------------------------------------

  logic we, started, complete, damaged, may_publish, may_subscribe, parser_free;
  logic passed;
  logic [SB+7:0] waddr;
  logic [63:0] wdata, stamp;
  logic [SB-1:0] slot;
  logic [7:0] words;
  logic [31:0] ip;
  logic [15:0] port, length;
  logic sent_free;
  mqtick_pkg::record_t rec;
  mqtick_receive #(.SLOTS(SLOTS)) u_receive (
    .clk, .rst, .enable(ready), .rx_hdr_valid, .rx_hdr_ready, .rx_src_ip, .rx_src_port, .rx_length,
    .rx_stamp, .rx_tdata, .rx_tkeep, .rx_tvalid, .rx_tready, .rx_tlast, .rx_tuser,
    .subnet_at, .publishers, .subscribers, .we, .waddr, .wdata,
    .slot, .passed, .started, .complete, .damaged, .words, .ip, .port, .length, .stamp,
    .may_publish, .may_subscribe, .free_a(parser_free), .free_a_slot(slot),
    .free_b(sent_free), .free_b_slot(rec.place[SB-1:0]));

  logic [10:0] at, p_at, c_at, k_at, t_at;
  logic [31:0] window;
  logic text_busy, control_busy, k_reads;
  logic tx_re;
  logic [SB+7:0] buffer_at, tx_at, k_words_at;
  logic [63:0] buffer_data;
  assign at = text_busy || text_start ? t_at : k_reads ? k_at : control_busy ? c_at : p_at;
  mqtick_buffer #(.SLOTS(SLOTS)) u_buffer (
    .clk, .we, .waddr, .wdata, .slot, .at, .window, .re(tx_re || k_reads), .raddr(buffer_at),
    .rdata(buffer_data));

  // ---- parse and hash ---------------------------------------------------------------------------

  logic p_text_start, c_text_start, text_start, text_done, text_bad, text_reserved, text_below;
  logic [10:0] p_text_at, c_text_at;
  logic [6:0] p_text_length, c_text_length;
  mqtick_pkg::piece_t piece;
  logic piece_valid;
  logic [15:0] plus;
  logic [4:0] depth;
  assign text_start = p_text_start || c_text_start;
  mqtick_text u_text (
    .clk, .rst, .start(text_start), .start_at(control_busy ? c_text_at : p_text_at),
    .start_length(control_busy ? c_text_length : p_text_length), .filter(control_busy),
    .busy(text_busy), .done(text_done), .at(t_at), .at_ok(9'(t_at[10:3]) + 9'd1 < 9'(words)),
    .window, .prefix_at, .prefix, .prefix_pieces, .piece, .piece_valid, .bad(text_bad),
    .reserved(text_reserved), .below(text_below), .plus, .depth);

  logic [119:0] hash_key;
  logic [SHAPES-1:0][15:0] shape_plus;
  logic [SHAPES-1:0][4:0] shape_depth;
  logic [SHAPES-1:0][HW-1:0] hash;
  logic hash_ready;
  mqtick_hash #(.SHAPES(SHAPES), .BITS(HW)) u_hash (
    .clk, .rst, .key(hash_key), .piece, .piece_valid, .plus(shape_plus), .depth(shape_depth),
    .hash, .ready(hash_ready));

  logic look, look_ready, keep, keep_done, keep_trailer, idle, control, control_done, sweep;
  logic sweep_due;
  logic [3:0] kind, in_flight;
  logic [10:0] body;
  mqtick_pkg::record_t made;
  mqtick_parser #(.SLOTS(SLOTS), .LOOPBACK_DOOR(LOOPBACK_DOOR)) u_parser (
    .clk, .rst, .ready, .slot, .started, .complete, .damaged, .words, .network(ip[31:24]), .port,
    .length, .stamp, .may_publish, .may_subscribe, .free(parser_free), .passed, .at(p_at), .window,
    .text_start(p_text_start), .text_at(p_text_at), .text_length(p_text_length), .text_done,
    .text_bad, .text_reserved, .text_below, .hash_ready, .look, .look_ready, .rec(made), .keep,
    .keep_done, .keep_trailer, .idle, .room(in_flight < 7), .control, .control_busy, .control_done,
    .kind, .body, .sweep_due, .sweep, .count(p_count), .count_what(p_what));

  // ---- look-up and generator --------------------------------------------------------------------

  logic match, match_end, match_ready, find_shape, shape_found, shape_room, find, store, drop;
  logic lookup_done, found, has_room;
  logic [TW-1:0] match_topic, drop_topic, place;
  mqtick_lookup #(.TOPICS(TOPICS), .SHAPES(SHAPES), .KEY_POOL(KEY_POOL), .TAG(TAG)) u_lookup (
    .clk, .rst, .clear, .clear_at, .shape_limit, .piece, .piece_valid, .plus, .depth, .shape_plus,
    .shape_depth, .hash, .look, .look_ready, .match, .match_end, .match_topic, .match_ready,
    .find_shape, .shape_found, .shape_room, .find, .store, .drop, .drop_topic, .done(lookup_done),
    .found, .room(has_room), .place, .topics);

  logic [TW-1:0] g_topic_at, c_topic_at, link_topic;
  logic [SW-1:0] g_entry_at, c_entry_at, topic_first, topic_last, entry_next, link_previous,
    link_next, lease_first;
  logic [CW-1:0] g_client_at, c_client_at, g_copies_at, entry_client;
  logic g_entry_re, g_client_re, g_copies_we, topic_we, entry_we, link_we, client_we, lease_we;
  logic copies_clear, share_we, client_valid;
  logic [CW-1:0] share_at;
  logic [CW:0] share_in, share_held;
  logic [23:0] g_copies, client_copies;
  logic [2*SW-1:0] topic_in;
  logic [CW+SW-1:0] entry_in;
  logic [TW+2*SW-1:0] link_in;
  logic [80:0] client_in;
  logic [SW+33:0] lease_in;
  logic [31:0] client_ip, client_expiry;
  logic [15:0] client_port;
  logic [27:0] lease_ticks;
  logic [5:0] lease_held;
  mqtick_tables #(.TW(TW), .SW(SW), .CW(CW)) u_tables (
    .clk, .clear, .clear_at, .control(control_busy), .sweep_re, .sweep_at, .g_topic_at, .g_entry_re,
    .g_entry_at, .g_client_re, .g_client_at, .g_copies_we, .g_copies_at, .g_copies, .c_topic_at,
    .c_entry_at, .c_client_at, .topic_we, .topic_in, .entry_we, .entry_in, .link_we, .link_in,
    .client_we, .client_in, .lease_we, .lease_in, .copies_clear, .share_at, .share_we, .share_in,
    .topic_first, .topic_last, .entry_client, .entry_next, .link_topic, .link_previous, .link_next,
    .client_valid, .client_ip, .client_port, .client_expiry, .client_copies, .lease_ticks,
    .lease_held, .lease_first, .share_held);

  logic sweep_re;
  logic [CW-1:0] sweep_at;
  mqtick_sweep #(.CW(CW)) u_sweep (
    .clk, .rst, .ready, .taken(g_client_re || control_busy), .re(sweep_re), .at(sweep_at),
    .client_valid, .client_expiry, .tick, .due(sweep_due), .sweep);

  logic g_who_valid, who_pop;
  logic [72:0] g_who;
  mqtick_generate #(.TW(TW), .SW(SW), .CW(CW)) u_generate (
    .clk, .rst, .begin_datagram(look), .begin_counted(made.trailer && !made.chained),
    .match, .match_end, .match_topic, .match_ready, .topic_at(g_topic_at), .topic_first,
    .entry_re(g_entry_re), .entry_at(g_entry_at), .entry_next, .entry_client,
    .client_re(g_client_re), .client_at(g_client_at), .client_valid, .client_ip, .client_port,
    .client_expiry, .client_copies, .copies_we(g_copies_we), .copies_at(g_copies_at),
    .copies(g_copies), .tick, .who_valid(g_who_valid), .who(g_who),
    .who_pop(who_pop && !c_send_valid && !k_send_valid), .sent(copy));

  // ---- control ----------------------------------------------------------------------------------

  logic deliver, deliver_done, answer_we, c_send_valid, k_send_valid;
  logic [2:0] answer_at;
  logic [63:0] answer_data;
  mqtick_pkg::record_t c_record, k_record;
  logic [72:0] c_who, k_who;
  mqtick_control #(.TW(TW), .SW(SW), .CW(CW), .SUBSCRIPTIONS(SUBSCRIPTIONS),
                   .ANSWER_PLACE(ANSWER_PLACE)) u_control (
    .clk, .rst, .cleared(!clear), .seed, .seed_valid, .ready, .hash_key, .start(control), .kind,
    .length(length[10:0]), .body, .ip, .port, .busy(control_busy), .done(control_done), .sweep,
    .sweep_at, .count(c_count), .count_what(c_what), .lease_s, .share_entries, .share_clients,
    .tick, .epoch, .at(c_at), .window, .text_start(c_text_start), .text_at(c_text_at),
    .text_length(c_text_length), .text_done, .text_bad(text_bad || text_reserved), .hash_ready,
    .find_shape, .shape_found, .shape_room, .find, .store, .drop, .drop_topic, .lookup_done, .found,
    .room(has_room), .place, .topic_at(c_topic_at), .entry_at(c_entry_at), .client_at(c_client_at),
    .topic_we, .topic_in, .entry_we, .entry_in, .link_we, .link_in, .client_we, .client_in,
    .lease_we, .lease_in, .copies_clear, .share_at, .share_we, .share_in, .topic_first, .topic_last,
    .entry_client, .entry_next, .link_topic, .link_previous, .link_next, .client_valid, .client_ip,
    .client_port, .client_expiry, .lease_ticks, .lease_held, .lease_first, .share_held, .deliver,
    .deliver_done, .answer_we, .answer_at, .answer_data, .send_valid(c_send_valid),
    .send_record(c_record), .send_who(c_who), .send_pop(who_pop), .clients, .entries);

  // ---- kept messages and answers ----------------------------------------------------------------

  logic [POOL_AW-1:0] pool_at, pool_base, k_pool_at, k_pool_into;
  logic [63:0] pool_data;
  logic k_pool_we;
  mqtick_retained #(.SLOTS(SLOTS), .PLACES(RETAINED), .OCTETS(RETAINED_OCTETS),
                    .PLACE_WORDS(PLACE_WORDS), .POOL_AW(POOL_AW)) u_retained (
    .clk, .rst, .keep, .keep_done, .slot, .length(length[10:0]), .topic_begins(p_text_at),
    .topic_length(p_text_length), .trailer(keep_trailer), .deliver, .deliver_done,
    .filter_begins(c_text_at), .filter_length(c_text_length), .ip, .port, .reads(k_reads),
    .at(k_at), .octet(window[7:0]), .words_at(k_words_at),
    .pool_at(k_pool_at), .pool(pool_data), .pool_we(k_pool_we), .pool_into(k_pool_into),
    .send_valid(k_send_valid), .send_record(k_record), .send_who(k_who), .send_pop(who_pop),
    .copy(k_copy), .count(k_count));
  assign k_what = mqtick_pkg::POOL;
  // Known one cycle after a record is at the head, when its first word is read.
  always_ff @(posedge clk) pool_base <= POOL_AW'(32'(out_record.place) * PLACE_WORDS);
  mqtick_ram #(.WIDTH(64), .DEPTH(POOL_WORDS)) u_pool (
    .clk, .we(answer_we || k_pool_we),
    .waddr(answer_we ? POOL_AW'(RETAINED * PLACE_WORDS) + POOL_AW'(answer_at) : k_pool_into),
    .wdata(answer_we ? answer_data : buffer_data), .re(k_reads || tx_re),
    .raddr(k_reads ? k_pool_at : pool_at), .rdata(pool_data));

  // ---- transmit ---------------------------------------------------------------------------------

  logic record_valid, record_pop;
  logic [3:0] record_count;
  mqtick_pkg::record_t out_record;
  logic [72:0] who;
  mqtick_fifo #(.WIDTH($bits(made)), .DEPTH(8)) u_records (
    .clk, .rst, .push(look), .in(made), .pop(sent_free), .out(rec), .valid(record_valid),
    .count(record_count));
  assign in_flight = record_count;
  assign idle = record_count == 0;
  assign out_record = k_send_valid ? k_record : c_send_valid ? c_record : rec;
  assign who = k_send_valid ? k_who : c_send_valid ? c_who : g_who;
  assign sent_free = record_pop && !c_send_valid && !k_send_valid;
  assign buffer_at = k_reads ? k_words_at : tx_at;
  mqtick_transmit #(.SLOTS(SLOTS), .POOL_AW(POOL_AW)) u_transmit (
    .clk, .rst, .record_valid(record_valid || c_send_valid || k_send_valid), .rec(out_record),
    .record_pop, .who_valid(k_send_valid || c_send_valid || g_who_valid), .who, .who_pop,
    .re(tx_re), .buffer_at(tx_at), .buffer_data, .pool_at, .pool_base, .pool_data,
    .tx_hdr_valid, .tx_hdr_ready, .tx_dst_ip, .tx_dst_port, .tx_length, .tx_fill, .tx_arrival,
    .tx_tdata, .tx_tkeep, .tx_tvalid, .tx_tready, .tx_tlast);

endmodule
