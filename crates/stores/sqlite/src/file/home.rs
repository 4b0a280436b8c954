//! The user's home, independent of the environment.
//!
//! `HOME` differs between a login shell, cron and a service of the same user. Two jobs of one user
//! that take different files do not exclude each other, so the user database decides.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The home of the user with this number; `None` if the user database has none.
pub(crate) fn of(uid: u32) -> Option<PathBuf> {
    let local = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    find(&local, uid).or_else(|| find(&directory(uid)?, uid))
}

/// The entry of a user that is not in the local file but in a directory service (LDAP, SSSD).
fn directory(uid: u32) -> Option<String> {
    let output = Command::new("getent")
        .args(["passwd", &uid.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(output.stdout).ok()
}

fn find(passwd: &str, uid: u32) -> Option<PathBuf> {
    let uid = uid.to_string();
    let mut users = passwd.lines().map(|line| line.split(':'));
    users.find_map(|mut fields| {
        let is_it = fields.nth(2) == Some(&uid);
        let home = PathBuf::from(fields.nth(2)?);
        // Accounts without a home have `/`.
        let usable = home.is_absolute() && home.parent().is_some();
        (is_it && usable).then_some(home)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_database_names_the_home() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n\
            broken\n\
            daemon:x:1:1::/:/usr/sbin/nologin\n\
            anna:x:1000:1000:Anna,,,:/home/anna:/bin/bash\n";
        assert_eq!(find(passwd, 1000), Some(PathBuf::from("/home/anna")));
        assert_eq!(find(passwd, 0), Some(PathBuf::from("/root")));
        assert_eq!(find(passwd, 1), None);
        assert_eq!(find(passwd, 100), None);
    }
}
