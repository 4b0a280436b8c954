//! The statements that delete idle rows. The watermark is the column `floor` of `clinch_meta`.

use async_trait::async_trait;
use clinch_table::{IdleRows, Scanned, Sent};
use mysql_async::Value;

use crate::columns::{bytes, next_number};
use crate::dialect::MySql;
use crate::sql::{NOW, Sql};

#[async_trait]
impl IdleRows for MySql {
    async fn begin_cleanup(&self, interval: u64) -> Sent<Option<u64>> {
        let make = Sql::new("INSERT IGNORE INTO clinch_meta (ns) VALUES (?)").bytes(&self.ns);
        self.query(&make).await?;
        let take = Sql::new(format!(
            "UPDATE clinch_meta SET reaped={NOW} WHERE ns=? AND reaped NOT BETWEEN {NOW}-? AND {NOW}"
        ))
        .bytes(&self.ns)
        .with(interval);
        if self.query(&take).await?.affected(0) != Some(1) {
            return Ok(None);
        }
        let read = Sql::new("SELECT floor FROM clinch_meta WHERE ns=?").bytes(&self.ns);
        let row = self.query(&read).await?.into_first_row();
        Ok(next_number(&mut row.unwrap_or_default().into_iter()))
    }

    async fn scan(&self, from: &[u8], age: u64, watermark: u64, limit: u64) -> Sent<Vec<Scanned>> {
        let sql = Sql::new(format!(
            "SELECT name,seq,seq<{NOW}-? AND seq<=?,request='' AND state IS NULL,until<{NOW} \
             FROM clinch_names WHERE ns=? AND name>? ORDER BY name LIMIT ?"
        ))
        .with(age)
        .with(watermark)
        .bytes(&self.ns)
        .bytes(from)
        .with(limit);
        let rows = self.query(&sql).await?.into_rows();
        let scanned = |row: Vec<Value>| {
            let mut values = row.into_iter();
            Some(Scanned {
                name: bytes(values.next()?)?,
                version: next_number(&mut values)?,
                idle: next_number(&mut values)? > 0,
                free: next_number(&mut values)? > 0,
                expired: next_number(&mut values)? > 0,
            })
        };
        Ok(rows.into_iter().filter_map(scanned).collect())
    }

    async fn delete(&self, rows: &[Scanned]) -> Sent<()> {
        let mut sql = Sql::default();
        for row in rows {
            sql = sql
                .then("DELETE FROM clinch_names WHERE ns=? AND name=? AND seq=?;")
                .bytes(&self.ns)
                .bytes(&row.name)
                .with(row.version);
        }
        sql.text.pop();
        self.query(&sql).await.map(drop)
    }

    async fn raise_watermark(&self, age: u64) -> Sent<()> {
        let raise = Sql::new(format!(
            "UPDATE clinch_meta SET floor=GREATEST(floor,{NOW}-?) WHERE ns=?"
        ))
        .with(age)
        .bytes(&self.ns);
        self.query(&raise).await.map(drop)
    }
}
