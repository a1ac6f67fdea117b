//! Names that are taken, and the bounds of everything a config can set.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use counterfoil_core::{limits, wire};

/// Names the built-in tools have.
pub const BUILT_IN_TOOLS: [&str; 2] = [wire::OPERATION_STATUS, wire::VOID_OPERATION];
/// Longest input name, in ASCII characters.
pub const INPUT_NAME: usize = 64;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// How long results or facts may be kept.
pub const WINDOW: RangeInclusive<Duration> = Duration::from_secs(1)..=YEAR.saturating_mul(100);
/// How long a statement may run, or wait for a lock.
pub const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(300);
/// How large a request body may be, in bytes.
pub const BODY: RangeInclusive<u64> = KIB..=64 * MIB;
/// How large a result may be, in bytes.
pub const RESULT: RangeInclusive<u64> = 256..=limits::RESULT_CEILING as u64;
/// How deep arrays and objects may nest.
pub const NESTING: RangeInclusive<i64> = 4..=256;
/// How many values one document may hold.
pub const VALUES: RangeInclusive<i64> = 100..=1_000_000;
/// How many calls may wait for the writer.
pub const QUEUE: RangeInclusive<i64> = 1..=65_536;
/// How many rows a read may answer with.
pub const ROWS: RangeInclusive<i64> = 1..=10_000;
/// How many rows a read answers with unless it says otherwise.
pub const DEFAULT_ROWS: u32 = 100;
/// How long a statement may run, or wait for a lock, unless configured.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(5);
/// How many connections to PostgreSQL there may be.
pub const POOL: RangeInclusive<i64> = 1..=1_000;
/// How many connections to PostgreSQL there are unless configured.
pub const DEFAULT_POOL: usize = 16;
/// How long `serve` may wait for PostgreSQL when it starts.
pub const START_WAIT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3_600);
/// How long `serve` waits for PostgreSQL unless configured.
pub const DEFAULT_START_WAIT: Duration = Duration::from_secs(30);
/// Where `serve` listens unless told otherwise.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// Who vouches for token and stdio principals unless they name another issuer.
pub const DEFAULT_ISSUER: &str = "local";
/// How far an issuer's clock may differ from ours.
pub const LEEWAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(300);
/// How far it may differ unless configured.
pub const DEFAULT_LEEWAY: Duration = Duration::from_secs(60);
/// How many connections there may be at once.
pub const CONNECTIONS: RangeInclusive<i64> = 1..=65_536;
/// How many there may be unless configured.
pub const DEFAULT_CONNECTIONS: usize = 1024;
/// How long a client may be waited for.
pub const WAIT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);
/// How long it is waited for unless configured.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(30);
/// Calls a second for each caller.
pub const RATE: RangeInclusive<i64> = 0..=1_000_000;
