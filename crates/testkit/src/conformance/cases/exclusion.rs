//! Two holders are never inside at once.

use super::prelude::*;

cases! { "exclusion";
    sixty_four_tasks [] "64 tasks of 4 clients add to an unprotected number, and none is lost";
    sixty_four_fair_tasks [Need::Has(Capability::Queue)] "the same without hand-over";
    eight_processes [Need::Processes] "8 processes read, add and write a file, and none is lost";
    eight_processes_fair [Need::Processes, Need::Has(Capability::Queue)] "the same in strict order";
    other_names_are_free [] "holding one name takes nothing from another";
    clients_of_other_names_do_not_wait [] "tasks on 32 names hold all of them at once";
}

async fn sixty_four_tasks(ctx: &Ctx) -> Outcome {
    tasks(ctx, false).await
}

async fn sixty_four_fair_tasks(ctx: &Ctx) -> Outcome {
    tasks(ctx, true).await
}

async fn tasks(ctx: &Ctx, fair: bool) -> Outcome {
    const TIMES: u64 = 5;
    let number = Arc::new(AtomicU64::new(0));
    let inside = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(ctx.client().await);
    }
    let mut tasks = Vec::new();
    for task in 0..64 {
        let lock = clients[task % 4].lock("hot").lease(ctx.long());
        let lock = if fair { lock.fair() } else { lock };
        let (number, inside) = (number.clone(), inside.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                let seen = number.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                number.store(seen + 1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(guard.is_valid());
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await?;
    }
    assert_eq!(number.load(Ordering::SeqCst), 64 * TIMES);
    Ok(())
}

async fn eight_processes(ctx: &Ctx) -> Outcome {
    processes(ctx, Claiming::lock("hot", ctx.long())).await
}

async fn eight_processes_fair(ctx: &Ctx) -> Outcome {
    processes(ctx, Claiming::lock("hot", ctx.long()).fair()).await
}

async fn processes(ctx: &Ctx, claiming: Claiming) -> Outcome {
    const TIMES: u32 = 20;
    let file = Scratch::new("0 0");
    let mut holders = Vec::new();
    for _ in 0..8 {
        holders.push(ctx.holder().await);
    }
    for holder in &mut holders {
        holder.start_count(&claiming, &file.0, TIMES);
    }
    for holder in &mut holders {
        let reply = holder.reply().await;
        assert_eq!(reply["counted"], true, "{reply}");
    }
    let text = std::fs::read_to_string(&file.0)?;
    let number = text.split(' ').next().unwrap();
    assert_eq!(number.parse::<u32>()?, 8 * TIMES);
    Ok(())
}

async fn other_names_are_free(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await;
    let a = client.lock("a").lease(ctx.long()).acquire().await?;
    let b = client.lock("b").lease(ctx.long()).try_acquire().await?;
    assert!(a.is_valid() && b.is_some_and(|b| b.is_valid()));
    Ok(())
}

async fn clients_of_other_names_do_not_wait(ctx: &Ctx) -> Outcome {
    let clients = [ctx.client().await, ctx.client().await];
    let mut guards = Vec::new();
    for n in 0..32 {
        let lock = clients[n % 2].lock(format!("n/{n}")).lease(ctx.long());
        guards.push(lock.try_acquire().await?.expect("free"));
    }
    assert!(guards.iter().all(clinch_core::Guard::is_valid));
    Ok(())
}

/// A file that goes away with its test.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(text: &str) -> Self {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("clinch-count-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left in the temporary folder at worst.
        let _ = std::fs::remove_file(&self.0);
    }
}
