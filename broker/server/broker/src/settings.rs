//! Temporary.
use crate::session::Bounds; use crate::desk::Mode; use std::path::{Path,PathBuf};
pub struct Listener{pub address:String,pub path:Option<PathBuf>}
impl Listener{pub fn name(&self)->String{self.address.clone()}}
pub struct AccessS{pub password_file:Option<PathBuf>,pub acl_file:Option<PathBuf>}
pub struct Limits{pub packet:usize,pub publishes_a_second_a_client:u32,pub topic_alias:u16,pub subscriptions_a_client:usize,pub connections:usize,pub session_expiry_s:u32,pub retained_messages:usize,pub connect_timeout_s:u64,pub connections_a_second:u32}
pub struct Rule{pub filter:String} impl Rule{pub fn mode(&self)->Mode{Mode::Ordered}}
pub struct Delivery{pub topic:Vec<Rule>}
pub struct Settings{pub listener:Vec<Listener>,pub access:AccessS,pub limits:Limits,pub delivery:Delivery}
impl Settings{pub fn threads(&self)->usize{2} pub fn anonymous(&self)->bool{true} pub fn bounds(&self)->Bounds{Bounds{octets:16<<20,messages:1000,window:20}}}
impl Default for Settings{fn default()->Self{Settings{listener:vec![Listener{address:"127.0.0.1:18830".into(),path:None}],access:AccessS{password_file:None,acl_file:None},limits:Limits{packet:1<<20,publishes_a_second_a_client:0,topic_alias:10,subscriptions_a_client:100000,connections:100000,session_expiry_s:u32::MAX,retained_messages:100000,connect_timeout_s:10,connections_a_second:10000},delivery:Delivery{topic:vec![]}}}}
pub fn load(_:&Path)->Result<Settings,String>{Ok(Settings::default())}
