//! The statements, and how values get into them.

use mysql_async::Value;

/// Microseconds since 2020 by the server's clock, whatever the time zone of the session is. The
/// same in all of one statement.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'2020-01-01',UTC_TIMESTAMP(6))";

/// Statements with a `?` for each value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sql {
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}

const BEGIN: &str = "START TRANSACTION;";

impl Sql {
    /// Statements without values so far.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            values: Vec::new(),
        }
    }

    /// All of it in one transaction: `COMMIT` ends it.
    pub(crate) fn in_transaction(mut self) -> Self {
        self.text.insert_str(0, BEGIN);
        self.then(";COMMIT")
    }

    /// Whether it is one, so that a failure leaves a transaction open.
    pub(crate) fn is_transaction(&self) -> bool {
        self.text.starts_with(BEGIN)
    }

    /// Goes on with more text.
    pub(crate) fn then(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// The value of the next `?`.
    pub(crate) fn with(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Bytes for the next `?`.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        self.with(Value::Bytes(bytes.to_vec()))
    }

    /// As many `?` as there are values, between commas.
    pub(crate) fn list<'a>(mut self, all: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut first = true;
        for bytes in all {
            self.text.push_str(if first { "?" } else { ",?" });
            self.values.push(Value::Bytes(bytes.to_vec()));
            first = false;
        }
        self
    }

    /// The text with its values in place. Bytes are written in hexadecimal digits, so there is
    /// nothing to escape.
    pub(crate) fn inlined(&self) -> String {
        let mut out = String::with_capacity(self.text.len() + self.values.len() * 24);
        let mut values = self.values.iter();
        for part in self.text.split_inclusive('?') {
            match part.strip_suffix('?') {
                Some(before) => {
                    out.push_str(before);
                    literal(values.next().unwrap_or(&Value::NULL), &mut out);
                }
                None => out.push_str(part),
            }
        }
        out
    }
}

fn literal(value: &Value, out: &mut String) {
    match value {
        Value::UInt(number) => out.push_str(&number.to_string()),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Bytes(bytes) => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let digit = |n: u8| DIGITS.get(usize::from(n)).map_or('0', |d| char::from(*d));
            out.push_str("x'");
            for byte in bytes {
                out.push(digit(byte >> 4));
                out.push(digit(byte & 15));
            }
            out.push('\'');
        }
        _ => out.push_str("NULL"),
    }
}

/// The name of a user-level lock. It may have 64 characters, so it is made of a hash.
pub(crate) fn user_lock<'a>(kind: &str, of: impl IntoIterator<Item = &'a [u8]>) -> String {
    // FNV: the same in every version of clinch, and two that meet do no harm.
    let bytes = of.into_iter().flatten();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("clinch.{kind}.{hash:016x}")
}

/// Statements on one name.
pub(crate) mod names {
    use super::{NOW, Sql, user_lock};
    use crate::row::{Content, Key};

    /// What a claim is told of its row.
    const COLUMNS: &str = "seq,token,request,since,until,lease,details,ended,state";

    fn watched() -> String {
        format!("COALESCE((SELECT watched_until FROM clinch_meta WHERE ns=?),0)>{NOW}")
    }

    /// Takes a name that is free, or makes the lease of a repeated claim run anew. Its row comes
    /// back in any case: `RETURNING` where there is such a thing, else by a SELECT in the same
    /// request, which begins with the time.
    ///
    /// Assignments are made in order and see those before: `token>seq` says from the first on that
    /// this statement grants. A name that is watched is left to the general way, which tells of it;
    /// and so is a claim that arrives after `latest`, unless it is sent again.
    pub(crate) fn take(
        key: &Key,
        new: &Content,
        lease: u64,
        seen: u64,
        latest: u64,
        returning: bool,
    ) -> Sql {
        let watched = watched();
        let mut text = String::new();
        if !returning {
            text = format!("SET @clinch={NOW};");
        }
        text += &format!(
            "INSERT INTO clinch_names (ns,name,request,lease,since,until,seq,token,owner,details,ended) \
             VALUES (?,?,IF({watched} OR {NOW}>?,'',?),?,{NOW},IF(request='',0,{NOW}+lease),\
             GREATEST({NOW},?,COALESCE((SELECT floor FROM clinch_meta WHERE ns=?),0)+1),\
             IF(request='',0,seq),?,?,'') \
             ON DUPLICATE KEY UPDATE \
             token=IF(VALUES(request)<>'' AND request='' AND state IS NULL AND \
             LOCATE(VALUES(request),ended)=0,GREATEST(seq+1,VALUES(seq)),token),\
             until=IF(token>seq OR (VALUES(request)<>'' AND request=VALUES(request) AND \
             state IS NULL AND until>{NOW}),GREATEST(until,VALUES(until)),until),\
             lease=IF(token>seq,VALUES(lease),\
             IF(request=VALUES(request),GREATEST(lease,VALUES(lease)),lease)),\
             since=IF(token>seq,VALUES(since),since),\
             owner=IF(token>seq,VALUES(owner),owner),\
             details=IF(token>seq,VALUES(details),details),\
             request=IF(token>seq,VALUES(request),request),\
             seq=IF(token>seq,token,\
             seq+(VALUES(request)<>'' AND request=VALUES(request) AND state IS NULL))"
        );
        let sql = Sql::new(text)
            .bytes(&key.ns)
            .bytes(&key.name)
            .bytes(&key.ns)
            .with(latest)
            .bytes(&new.request)
            .with(lease)
            .with(seen + 1)
            .bytes(&key.ns)
            .bytes(&new.owner)
            .bytes(&new.details);
        match returning {
            true => sql.then(&format!(" RETURNING {COLUMNS},{NOW}")),
            false => sql
                .then(&format!(
                    ";SELECT {COLUMNS},@clinch FROM clinch_names WHERE ns=? AND name=?"
                ))
                .bytes(&key.ns)
                .bytes(&key.name),
        }
    }

    /// Takes a free name whose row has still the version that this client gave it. One row, and the
    /// token in place of the last inserted id; or none if it is not like that.
    ///
    /// The version says that the row is as it was left, so nothing else of it is looked at but what
    /// the client does not know: the claims that have ended.
    pub(crate) fn retake(
        key: &Key,
        new: &Content,
        lease: u64,
        version: u64,
        seen: u64,
        quiet: u64,
    ) -> Sql {
        Sql::new(format!(
            "UPDATE clinch_names SET since={NOW},seq=LAST_INSERT_ID(GREATEST(?,since)),token=seq,\
             until=since+?,lease=?,owner=?,details=?,request=? \
             WHERE ns=? AND name=? AND seq=? AND LOCATE(?,ended)=0 AND {NOW}<?"
        ))
        .with(version.max(seen) + 1)
        .with(lease)
        .with(lease)
        .bytes(&new.owner)
        .bytes(&new.details)
        .bytes(&new.request)
        .bytes(&key.ns)
        .bytes(&key.name)
        .with(version)
        .bytes(&new.request)
        .with(quiet)
    }

    /// Gives up a hold that nobody waits for. One row, and its version in place of the last inserted
    /// id; or none if it is not like that, or somebody watches.
    ///
    /// Who held it stays written there: mostly the same client takes it again, and what does not
    /// change costs the server nothing.
    pub(crate) fn give(
        key: &Key,
        request: &[u8],
        token: u64,
        farewell: &[u8],
        keep: u64,
        watch: Watch,
    ) -> Sql {
        let sql = Sql::new(format!(
            "UPDATE clinch_names SET ended=RIGHT(CONCAT(ended,?,owner),?),request='',until=0,\
             seq=LAST_INSERT_ID(GREATEST(seq+1,{NOW})) \
             WHERE ns=? AND name=? AND request=? AND token=? AND state IS NULL AND until>{NOW} AND "
        ))
        .bytes(farewell)
        .with(keep)
        .bytes(&key.ns)
        .bytes(&key.name)
        .bytes(request)
        .with(token);
        if_unwatched(sql, key, watch)
    }

    /// Whether somebody watches, and the time.
    pub(crate) fn watched_now(ns: &[u8]) -> Sql {
        Sql::new(format!("SELECT {},{NOW}", watched())).bytes(ns)
    }

    /// The row with the time, if there is one: what is needed while nobody watches.
    pub(crate) fn look(key: &Key) -> Sql {
        Sql::new(format!(
            "SELECT {COLUMNS},{NOW} FROM clinch_names WHERE ns=? AND name=?"
        ))
        .bytes(&key.ns)
        .bytes(&key.name)
    }

    /// The whole row with the time, whether somebody watches and the least token; one line in any
    /// case.
    pub(crate) fn read(key: &Key) -> Sql {
        Sql::new(format!(
            "SELECT n.seq,n.token,n.request,n.since,n.until,n.lease,n.details,n.ended,n.state,{NOW},\
             COALESCE(m.watched_until,0)>{NOW},COALESCE(m.floor,0) \
             FROM (SELECT 1 one) o LEFT JOIN clinch_meta m ON m.ns=? \
             LEFT JOIN clinch_names n ON n.ns=? AND n.name=?"
        ))
        .bytes(&key.ns)
        .bytes(&key.ns)
        .bytes(&key.name)
    }

    /// Makes the row of a free name, unless there is one.
    pub(crate) fn make(key: &Key, least: u64) -> Sql {
        Sql::new(format!(
            "INSERT IGNORE INTO clinch_names \
             (ns,name,request,lease,since,until,seq,token,owner,details,ended) \
             VALUES (?,?,'',0,0,0,\
             GREATEST({NOW},?,COALESCE((SELECT floor FROM clinch_meta WHERE ns=?),0)+1),\
             0,'','','')"
        ))
        .bytes(&key.ns)
        .bytes(&key.name)
        .with(least)
        .bytes(&key.ns)
    }

    /// Writes a row that has not changed since it was read.
    pub(crate) fn write(key: &Key, new: &Content, seq: u64, before: u64, watch: Watch) -> Sql {
        let sql = Sql::new(
            "UPDATE clinch_names SET seq=?,token=?,request=?,since=?,until=?,lease=?,owner=?,details=?,\
             ended=?,state=? WHERE ns=? AND name=? AND seq=?",
        )
        .with(seq)
        .with(new.token)
        .bytes(&new.request)
        .with(new.since)
        .with(new.until)
        .with(new.lease)
        .bytes(&new.owner)
        .bytes(&new.details)
        .bytes(&new.ended)
        .with(new.state.clone())
        .bytes(&key.ns)
        .bytes(&key.name)
        .with(before);
        match watch {
            Watch::Watched => sql,
            other => if_unwatched(sql.then(" AND "), key, other),
        }
    }

    /// Whether somebody watches, for a statement that is only right if nobody does.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Watch {
        /// Somebody does, and is told.
        Watched,
        /// Nobody does before this moment.
        QuietUntil(u64),
        /// The statement has to look.
        Unknown,
    }

    fn if_unwatched(sql: Sql, key: &Key, watch: Watch) -> Sql {
        match watch {
            Watch::QuietUntil(until) => sql.then(&format!("{NOW}<?")).with(until),
            _ => sql.then(&format!("NOT {}", watched())).bytes(&key.ns),
        }
    }

    /// The user-level lock of a row.
    fn turn_of(key: &Key) -> String {
        user_lock("turn", [key.ns.as_slice(), b"/", key.name.as_slice()])
    }

    /// Waits for a turn at a row, for so many seconds at most, unless this connection has it. Gives 1
    /// if it has come, and the connections that had it before and have it afterwards.
    pub(crate) fn turn(key: &Key, seconds: u64, stuck: u64) -> Sql {
        let lock = turn_of(key);
        Sql::new(format!(
            "SET @clinch=COALESCE(IS_USED_LOCK('{lock}'),0);\
             SELECT IF(@clinch={stuck} AND @clinch<>0,0,GET_LOCK('{lock}',{seconds})),@clinch,\
             IS_USED_LOCK('{lock}')"
        ))
    }

    /// Lets the next one have its turn.
    pub(crate) fn end_turn(key: &Key) -> Sql {
        Sql::new(format!("DO RELEASE_LOCK('{}')", turn_of(key)))
    }

    /// For a write: nobody has a turn at the row.
    pub(crate) fn if_no_turn(key: &Key) -> String {
        format!(" AND IS_FREE_LOCK('{}')", turn_of(key))
    }

    /// For a write that adds a claim: it is not later than that.
    pub(crate) fn until(latest: u64) -> String {
        format!(" AND {NOW}<{latest}")
    }

    /// For a general row: no claim in it has run out by now.
    pub(crate) const NOTHING_ENDED: &str =
        " AND until>TIMESTAMPDIFF(MICROSECOND,'2020-01-01',UTC_TIMESTAMP(6))";

    /// The rows of names that are in use, from `from` on.
    pub(crate) fn in_use(ns: &[u8], from: &[u8], past: bool, count: u64) -> Sql {
        let more = if past { ">" } else { ">=" };
        Sql::new(format!(
            "SELECT name,{COLUMNS},{NOW} FROM clinch_names WHERE ns=? AND name{more}? \
             AND (request<>'' OR state IS NOT NULL) ORDER BY name LIMIT ?"
        ))
        .bytes(ns)
        .bytes(from)
        .with(count)
    }

    /// The rows of these names.
    pub(crate) fn rows<'a>(ns: &[u8], names: impl Iterator<Item = &'a [u8]>) -> Sql {
        Sql::new(format!(
            "SELECT name,{COLUMNS},{NOW} FROM clinch_names WHERE ns=? AND name IN ("
        ))
        .bytes(ns)
        .list(names)
        .then(")")
    }

    /// A wait for a user-level lock, unless one of these names has given a token since: tokens rise,
    /// so their sum tells. Gives one number.
    pub(crate) fn wait<'a>(
        ns: &[u8],
        names: impl Iterator<Item = &'a [u8]>,
        sum: u64,
        lock: &str,
        seconds: u64,
    ) -> Sql {
        Sql::new(
            "SELECT IF((SELECT COALESCE(SUM(token),0) FROM clinch_names WHERE ns=? AND name IN (",
        )
        .bytes(ns)
        .list(names)
        .then(&format!("))<>?,0,GET_LOCK('{lock}',{seconds}))"))
        .with(sum)
    }
}
