// Blocks, prefixes and eviction: small cases by hand, then random use against a slow model.
#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace quintet {
namespace {

KvTier tier(int64_t pages, int32_t tokens) {
  return {.page = {.format = 0, .tokens = tokens, .bytes = 256}, .pages = pages};
}

TEST(BlockPool, CountsReferencesAndReusesTouchedBlocksFirst) {
  BlockPool pool(3);
  const BlockId a = pool.take(), b = pool.take();
  EXPECT_NE(a, b);
  pool.add_reference(a);
  EXPECT_FALSE(pool.drop_reference(a));
  EXPECT_TRUE(pool.drop_reference(a));
  EXPECT_EQ(pool.take(), a);
  EXPECT_EQ(pool.figures().touched_blocks, 2);
  EXPECT_NE(pool.take(), kNoBlock);
  EXPECT_EQ(pool.take(), kNoBlock);
  EXPECT_DEATH(({
                 BlockPool other(1);
                 other.drop_reference(0);
               }),
               "already free");
}

TEST(BlockPool, FiguresTellHowTheFreeBlocksLie) {
  BlockPool pool(8);
  for (int i = 0; i < 8; ++i) pool.take();
  for (BlockId block : {0u, 2u, 3u, 4u, 7u}) pool.drop_reference(block);
  const BlockPoolFigures figures = pool.figures();
  EXPECT_EQ(figures.total_blocks, 8);
  EXPECT_EQ(figures.free_blocks, 5);
  EXPECT_EQ(figures.free_runs, 3);
  EXPECT_EQ(figures.longest_free_run_blocks, 3);
}

class KvCacheTest : public ::testing::Test {
 protected:
  std::vector<BlockId> find(SpaceId space, const std::vector<TokenId>& tokens) {
    std::vector<BlockId> blocks;
    blocks.reserve(64);
    cache.index().find(space, tokens, blocks);
    return blocks;
  }

  KvCache cache{tier(4, 2), 77};
};

TEST_F(KvCacheTest, FindsWhatWasPublishedAndOnlyThat) {
  const SpaceId space = cache.index().open_space("a"), other = cache.index().open_space("b");
  EXPECT_EQ(cache.index().open_space("a"), space);
  EXPECT_NE(space, other);
  const BlockId first = cache.allocate(), second = cache.allocate();
  EXPECT_EQ(cache.publish(space, kNoBlock, std::vector<TokenId>{1, 2}, first), first);
  EXPECT_EQ(cache.publish(space, first, std::vector<TokenId>{3, 4}, second), second);
  EXPECT_EQ(find(space, {1, 2, 3, 4, 5}), (std::vector<BlockId>{first, second}));
  EXPECT_EQ(find(space, {1, 2, 3}), (std::vector<BlockId>{first}));
  EXPECT_EQ(find(space, {3, 4}), std::vector<BlockId>{});  // the right tokens at the wrong place
  EXPECT_EQ(find(other, {1, 2, 3, 4}), std::vector<BlockId>{});
}

TEST_F(KvCacheTest, ASpaceLivesAsLongAsItIsOpenOrHoldsBlocks) {
  const SpaceId space = cache.index().open_space("a");
  const BlockId block = cache.allocate();
  cache.publish(space, kNoBlock, std::vector<TokenId>{1, 2}, block);
  cache.release({&block, 1});
  cache.index().close_space(space);
  EXPECT_NE(cache.index().open_space("b"), space);
  EXPECT_EQ(cache.index().open_space("a"), space);
  EXPECT_EQ(find(space, {1, 2}), (std::vector<BlockId>{block}));
  cache.index().close_space(space);
  for (int i = 0; i < 4; ++i) cache.allocate();     // evicts it
  EXPECT_EQ(cache.index().open_space("c"), space);  // thousands of salts do not add up
  EXPECT_EQ(find(space, {1, 2}), std::vector<BlockId>{});
}

TEST_F(KvCacheTest, TheSamePrefixTwiceBecomesOneBlock) {
  const SpaceId space = cache.index().open_space("");
  const BlockId mine = cache.allocate(), theirs = cache.allocate();
  EXPECT_EQ(cache.publish(space, kNoBlock, std::vector<TokenId>{1, 2}, mine), mine);
  EXPECT_EQ(cache.publish(space, kNoBlock, std::vector<TokenId>{1, 2}, theirs), mine);
  EXPECT_EQ(cache.pool().references(mine), 3);  // two holders and the index
  EXPECT_EQ(cache.available_blocks(), 3);
}

TEST_F(KvCacheTest, IdleBlocksAreAvailableAndGoInOrderOfLastUseEndsFirst) {
  const SpaceId space = cache.index().open_space("");
  std::vector<BlockId> chain;
  BlockId parent = kNoBlock;
  for (TokenId token : {1, 2, 3}) {
    chain.push_back(cache.allocate());
    parent = cache.publish(space, parent, std::vector<TokenId>{token, token}, chain.back());
  }
  EXPECT_EQ(cache.available_blocks(), 1);
  EXPECT_EQ(cache.releasable(chain), 3);
  cache.release(chain);
  EXPECT_EQ(cache.available_blocks(), 4);
  EXPECT_EQ(find(space, {1, 1, 2, 2, 3, 3}), chain);
  EXPECT_EQ(cache.idle_among(chain), 3);
  // Using the first block again makes it the youngest.
  cache.hold({chain.data(), 1});
  EXPECT_EQ(cache.available_blocks(), 3);
  cache.release({chain.data(), 1});
  cache.allocate();
  EXPECT_EQ(cache.allocate(), chain[2]);
  EXPECT_EQ(find(space, {1, 1, 2, 2, 3, 3}), (std::vector<BlockId>{chain[0], chain[1]}));
  EXPECT_EQ(cache.allocate(), chain[1]);
  EXPECT_EQ(cache.allocate(), chain[0]);
  EXPECT_EQ(cache.allocate(), kNoBlock);
  EXPECT_EQ(find(space, {1, 1}), std::vector<BlockId>{});
}

TEST_F(KvCacheTest, ResidencyGivesSlotsOfTheBlocksOwnPage) {
  EXPECT_EQ(cache.residency().ref(3).page, 3u);
  EXPECT_EQ(cache.residency().slot(3, 1), 7);
}

// Random chains of few distinct tokens, so that prefixes meet and the table collides, over a small pool. The
// slow model keeps, for every published block, its salt and whole prefix.
TEST(KvCacheRandom, AgreesWithASlowModel) {
  using Prefix = std::pair<std::string, std::vector<TokenId>>;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const int32_t block_tokens = 1 + static_cast<int32_t>(random() % 3);
    const int64_t pages = 5 + random() % 40;
    KvCache cache(tier(pages, block_tokens), seed);
    struct Chain {
      std::string salt;
      SpaceId space;
      std::vector<TokenId> tokens;
      std::vector<BlockId> blocks;
    };
    std::vector<Chain> chains;
    std::map<BlockId, Prefix>
        model;  // published blocks; those evicted since are dropped when their number comes back
    std::vector<BlockId> hits;
    hits.reserve(64);
    for (int step = 0; step < 3000; ++step) {
      const uint32_t action = random() % 10;
      if (action < 3) {
        Chain chain;
        chain.salt = random() % 4 ? "x" : "y";
        chain.space = cache.index().open_space(chain.salt);
        for (int32_t i = 0, n = block_tokens * static_cast<int32_t>(random() % 6); i < n; ++i)
          chain.tokens.push_back(static_cast<TokenId>(random() % 2));
        cache.index().find(chain.space, chain.tokens, hits);
        for (size_t i = 0; i < hits.size(); ++i) {
          ASSERT_TRUE(model.contains(hits[i]));
          const Prefix expected{chain.salt,
                                {chain.tokens.begin(), chain.tokens.begin() + (i + 1) * block_tokens}};
          ASSERT_EQ(model[hits[i]], expected);
        }
        // Nothing longer is published: the model agrees that the next block is not there.
        if (chain.tokens.size() / block_tokens > hits.size()) {
          const Prefix missing{
              chain.salt, {chain.tokens.begin(), chain.tokens.begin() + (hits.size() + 1) * block_tokens}};
          for (const auto& [block, prefix] : model)
            ASSERT_NE(prefix, missing) << "block " << block << " was not found";
        }
        cache.hold(hits);
        chain.blocks = hits;
        chain.tokens.resize(hits.size() * block_tokens);
        chains.push_back(chain);
      } else if (action < 8 && !chains.empty()) {
        Chain& chain = chains[random() % chains.size()];
        const int64_t available = cache.available_blocks();
        const BlockId block = cache.allocate();
        ASSERT_EQ(block == kNoBlock, available == 0);
        if (block == kNoBlock) continue;
        ASSERT_EQ(cache.available_blocks(), available - 1);
        ASSERT_EQ(cache.pool().references(block), 1);
        model.erase(block);
        std::vector<TokenId> tokens;
        for (int32_t i = 0; i < block_tokens; ++i) tokens.push_back(static_cast<TokenId>(random() % 2));
        const BlockId parent = chain.blocks.empty() ? kNoBlock : chain.blocks.back();
        const BlockId known = cache.publish(chain.space, parent, tokens, block);
        chain.tokens.insert(chain.tokens.end(), tokens.begin(), tokens.end());
        chain.blocks.push_back(known);
        if (known != block) {
          ASSERT_EQ(model[known], (Prefix{chain.salt, chain.tokens}));
        }
        model[known] = {chain.salt, chain.tokens};
      } else if (!chains.empty()) {
        const size_t i = random() % chains.size();
        cache.release(chains[i].blocks);
        cache.index().close_space(chains[i].space);
        chains.erase(chains.begin() + static_cast<ptrdiff_t>(i));
      }
      // Held blocks, each once, and available ones make the whole pool.
      std::set<BlockId> held;
      for (const Chain& chain : chains) held.insert(chain.blocks.begin(), chain.blocks.end());
      ASSERT_EQ(static_cast<int64_t>(held.size()) + cache.available_blocks(), pages);
      std::erase_if(model, [&](const auto& entry) { return !cache.index().published(entry.first); });
    }
  }
}

}  // namespace
}  // namespace quintet
