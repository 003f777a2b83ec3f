// Inside mqtick_control: a filter that is refused has written nothing into any table.
logic reset = 1, wrote = 0, refuses = 0;
wire [$bits(state)-1:0] where = state == PAUSE ? then : state;
wire writes = store || topic_we || entry_we || link_we || lease_we || share_we;
// From the look at a filter to the verdict.
wire judging = (where >= EACH_LENGTH && where <= MISSING) || where == REFUSE;
always_ff @(posedge clk) begin
  reset <= 0;
  assume (rst == reset);
  wrote <= state != EACH && (wrote || writes);
  refuses <= state == REFUSE && !rst;
  if (!rst) begin
    // What a state writes is seen in the next one.
    if (judging || refuses) assert (!wrote && !writes);
    // What makes it inductive: nothing leads back into the judging of the same filter.
    assert (where != PAUSE);
    if (where >= REMOVE && where <= REMOVE_FREE) assert (removed == TAKEN || removed == FORGET_EACH);
    if (where == FORGET_EACH) assert (removed == FORGET_EACH);
    if ((where >= FORGET && where <= FORGOTTEN)
        || (where >= REMOVE && where <= REMOVE_FREE && removed == FORGET_EACH))
      assert (forgot == SEEK_READ || forgot == FINISH || forgot == IDLE);
  end
end
