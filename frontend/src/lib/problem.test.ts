import { expect, test } from 'vitest';
import { ApiError, fieldMessages } from '@/lib/problem';

test('a problem body is read with its code, request id and fields', () => {
  const error = new ApiError(422, {
    title: 'Invalid input',
    detail: 'The seed is not a number.',
    code: 'split.recipe_invalid',
    request_id: 'req-7',
    errors: [{ pointer: '/recipe/seed', message: 'not a number' }, { nonsense: true }],
  });
  expect(error.message).toBe('The seed is not a number.');
  expect([error.code, error.requestId]).toEqual(['split.recipe_invalid', 'req-7']);
  expect(fieldMessages(error)).toEqual({ 'recipe.seed': 'not a number' });
});

test('an answer that is no problem body still says something', () => {
  const error = new ApiError(502, '<html>Bad gateway</html>', 'req-8');
  expect(error.message).toBe('The server failed to answer this request.');
  expect([error.code, error.requestId]).toEqual(['http.502', 'req-8']);
});
