//! Claims enter in the order of their tickets.

use std::sync::Mutex;

use super::prelude::*;

const QUEUE: Need = Need::Has(Capability::Queue);

cases! { "fifo";
    grants_in_ticket_order [QUEUE] "fair claims of different clients enter in the order of arrival";
    one_clients_claims_do_not_overtake [QUEUE] "fair claims of two clients alternate as they arrived";
    a_try_does_not_overtake [QUEUE] "a try fails while others wait, even for the one who releases";
    a_leaver_gives_its_place_up [QUEUE] "when a waiter leaves, those behind it move up in order";
    dead_waiter_at_the_head [QUEUE] "a waiter that is cut off blocks the queue for its lease at most";
    killed_waiter_at_the_head [QUEUE, Need::Processes] "so does one whose process was killed";
    paused_waiter_does_not_enter_late [QUEUE, Need::Processes] "a waiter that was stopped past its lease enters with a valid grant or not at all";
}

/// Starts fair claims of `x`, each after the one before it is in the queue, and records the order
/// in which they enter.
async fn line_up(ctx: &Ctx, clients: &[Client]) -> (Vec<tokio::task::JoinHandle<()>>, Order) {
    let order = Order::default();
    let mut tasks = Vec::new();
    for (place, client) in clients.iter().enumerate() {
        let (lock, order) = (client.lock("x").lease(ctx.long()).fair(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push((place, guard.token().get()));
            guard.release().await.unwrap();
        }));
        ctx.until(client, "x", 1, place + 1).await;
    }
    (tasks, order)
}

type Order = Arc<Mutex<Vec<(usize, u64)>>>;

async fn entered(tasks: Vec<tokio::task::JoinHandle<()>>, order: &Order) -> Vec<usize> {
    for task in tasks {
        // One that was aborted by the case itself is not in the order.
        match soon("a waiter", task).await {
            Err(error) if !error.is_cancelled() => panic!("{error}"),
            _ => {}
        }
    }
    let order = order.lock().unwrap();
    assert!(order.is_sorted_by_key(|(_, token)| *token), "{order:?}");
    order.iter().map(|(place, _)| *place).collect()
}

async fn grants_in_ticket_order(ctx: &Ctx) -> Outcome {
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(ctx.client().await);
    }
    let guard = clients[0].lock("x").lease(ctx.long()).acquire().await?;
    let (tasks, order) = line_up(ctx, &clients).await;
    guard.release().await?;
    assert_eq!(entered(tasks, &order).await, [0, 1, 2, 3, 4, 5]);
    Ok(())
}

async fn one_clients_claims_do_not_overtake(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let turns = [a.clone(), b.clone(), a.clone(), a.clone(), b.clone(), a];
    let (tasks, order) = line_up(ctx, &turns).await;
    guard.release().await?;
    assert_eq!(entered(tasks, &order).await, [0, 1, 2, 3, 4, 5]);
    Ok(())
}

async fn a_try_does_not_overtake(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    for _ in 0..10 {
        let guard = a.lock("x").lease(ctx.long()).acquire().await?;
        let lock = b.lock("x").lease(ctx.long());
        let waiter = tokio::spawn(async move { lock.acquire().await });
        ctx.until(&a, "x", 1, 1).await;
        guard.release().await?;
        // The release has granted the waiter: nobody can come between.
        let tried = a.lock("x").lease(ctx.long()).try_acquire().await?;
        assert!(tried.is_none(), "the releaser overtook the queue");
        soon("the waiter", waiter).await??.release().await?;
    }
    Ok(())
}

async fn a_leaver_gives_its_place_up(ctx: &Ctx) -> Outcome {
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(ctx.client().await);
    }
    let guard = clients[0].lock("x").lease(ctx.long()).acquire().await?;
    let (tasks, order) = line_up(ctx, &clients).await;
    tasks[1].abort();
    ctx.until(&clients[0], "x", 1, 3).await;
    guard.release().await?;
    assert_eq!(entered(tasks, &order).await, [0, 2, 3]);
    Ok(())
}

async fn dead_waiter_at_the_head(ctx: &Ctx) -> Outcome {
    let (a, dead, b) = (ctx.client().await, ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let lock = dead.lock("x").lease(ctx.lease()).fair();
    let gone = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    let lock = b.lock("x").lease(ctx.long()).fair();
    let next = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 2).await;
    dead.faults.cut(true);
    guard.release().await?;
    let guard = soon("the next in the queue", next).await??;
    assert!(guard.is_valid());
    gone.abort();
    Ok(())
}

async fn killed_waiter_at_the_head(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut dead = ctx.holder().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    dead.start_acquire(&Claiming::lock("x", ctx.lease()).fair());
    ctx.until(&a, "x", 1, 1).await;
    let lock = b.lock("x").lease(ctx.long()).fair();
    let next = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 2).await;
    dead.kill();
    guard.release().await?;
    assert!(soon("the next in the queue", next).await??.is_valid());
    Ok(())
}

async fn paused_waiter_does_not_enter_late(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut paused = ctx.holder().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    paused.start_acquire(&Claiming::lock("x", ctx.lease()).fair());
    ctx.until(&a, "x", 1, 1).await;
    ctx.stop(&paused, &b).await;
    guard.release().await?;
    // It is granted to a process that stands still, runs out, and goes to us.
    let lock = b.lock("x").lease(ctx.long()).fair();
    let guard = soon("the one behind it", lock.acquire()).await?;
    paused.cont();
    ctx.until(&a, "x", 1, 1).await;
    assert!(guard.is_valid(), "it waits anew, behind us");
    let token = guard.token().get();
    guard.release().await?;
    let late = paused.acquired().await.expect("it waits for ever");
    assert!(late > token, "its first grant is void");
    paused.release("x").await;
    Ok(())
}
